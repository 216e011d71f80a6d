//! WebSocket upgrade for sockets of nanomsg and NNG, as a server and as a client.

use super::address::SocketAddress;
use super::settings::GatewaySettings;
use engine::websocket::{AllowedOrigins, HEAD_BYTES_MAX, WebSocketSite, accept_upgrade};
use net::endpoint::{AsyncStream, ServerEndpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{WebSocketUpgrade, http_head_end};

/// Request line of NNG 1.6 for a URL without a path, which is not valid HTTP.
const NO_PATH: &[u8] = b"GET  ";

/// Accepts the upgrade of a new peer. Returns the bytes received after the request; does nothing
/// without WebSocket.
pub(super) async fn accept_peer_upgrade(
    settings: &GatewaySettings,
    place: &SocketAddress,
    wire: &mut Box<dyn AsyncStream>,
) -> Result<Vec<u8>, String> {
    let Some(path) = place.web_path() else { return Ok(Vec::new()) };
    let (mut head, rest) = read_head(wire).await?;
    if head.starts_with(NO_PATH) {
        head.insert(NO_PATH.len() - 1, b'/');
    }
    // A browser may connect only from pages of this host: the gateway has no other protection
    // against foreign pages.
    let site = WebSocketSite {
        path: (path != "/").then(|| path.into()),
        origins: AllowedOrigins::ThisHost,
        address_header: None,
    };
    let mut said = Vec::new();
    let welcomed = accept_upgrade(&head, &site, &settings.pattern.web_protocol(true), &mut said);
    write(wire, &said).await?;
    welcomed.map(|()| rest)
}

/// Requests the upgrade from a listening peer. Returns the bytes received after the response.
pub(super) async fn request_upgrade(
    settings: &GatewaySettings,
    place: &SocketAddress,
    wire: &mut Box<dyn AsyncStream>,
) -> Result<Vec<u8>, String> {
    let (Some(path), SocketAddress::Net { host, port, .. }) = (place.web_path(), place) else {
        return Ok(Vec::new());
    };
    let protocol = settings.pattern.web_protocol(false);
    let endpoint = ServerEndpoint { host: host.clone(), port: *port, tls: None };
    let asked = WebSocketUpgrade::new(&endpoint.to_string(), path, &protocol);
    write(wire, asked.request.as_bytes()).await?;
    let (head, rest) = read_head(wire).await?;
    asked.check(&head)?;
    Ok(rest)
}

async fn write(wire: &mut Box<dyn AsyncStream>, bytes: &[u8]) -> Result<(), String> {
    let written = wire.write_all(bytes).await;
    let flushed = match written {
        Ok(()) => wire.flush().await,
        wrong => wrong,
    };
    flushed.map_err(|error| error.to_string())
}

/// Reads an HTTP head. Returns the head and the bytes after it.
async fn read_head(wire: &mut Box<dyn AsyncStream>) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut head = Vec::new();
    loop {
        if let Some(end) = http_head_end(&head, 0) {
            let rest = head.split_off(end);
            return Ok((head, rest));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err("it speaks no HTTP, or too much of it".to_string());
        }
        match wire.read_buf(&mut head).await {
            Ok(0) => return Err("it closed the connection".to_string()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio::runtime::Builder;

    #[test]
    fn a_request_says_its_host_as_a_url_does() {
        let place = SocketAddress::parse("ws://[::1]:80/a").unwrap();
        let (ours, mut theirs) = duplex(4096);
        let (mut wire, settings): (Box<dyn AsyncStream>, _) =
            (Box::new(ours), GatewaySettings::default());
        let asked = async {
            let mut head = vec![0; 4096];
            let len = theirs.read(&mut head).await.unwrap();
            drop(theirs);
            String::from_utf8(head[..len].to_vec()).unwrap()
        };
        let both = async { tokio::join!(request_upgrade(&settings, &place, &mut wire), asked) };
        let (_, head) = Builder::new_current_thread().build().unwrap().block_on(both);
        assert!(head.contains("\r\nHost: [::1]:80\r\n"), "{head}");
    }
}
