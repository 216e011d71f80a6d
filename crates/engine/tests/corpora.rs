//! Runs the fuzz targets of this crate on the stored corpora, without a fuzzer.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn proxy_header_takes_its_corpus() {
    replay("proxy_header", engine::proxy::probe);
}

#[test]
fn web_socket_takes_its_corpus() {
    replay("web_socket", engine::websocket::probe);
}
