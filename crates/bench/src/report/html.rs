//! One HTML file that needs nothing else: the document, uPlot and our own script stand in it.

use super::text;
use serde_json::Value;

/// Several reports are overlaid in the same charts.
pub(crate) fn html(reports: &[Value]) -> String {
    let title = reports.first().map_or("", |report| text(report, "/scenario/name"));
    // A `<` could end the script element or open a comment in it; JSON may write it escaped.
    let document = Value::Array(reports.iter().map(without_histograms).collect());
    let document = document.to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
         <style>\n{UPLOT_CSS}\n{OUR_CSS}</style>\n</head>\n<body>\n<main id=\"page\"></main>\n\
         <script type=\"application/json\" id=\"reports\">{document}</script>\n\
         <script>\n{UPLOT}\n</script>\n<script>\n{OURS}</script>\n</body>\n</html>\n",
        escaped(title)
    )
}

/// What no chart shows stays in the JSON report.
fn without_histograms(report: &Value) -> Value {
    let mut report = report.clone();
    let samplers = report.get_mut("samplers").and_then(Value::as_array_mut);
    for sampler in samplers.into_iter().flatten().filter_map(Value::as_object_mut) {
        sampler.remove("histogram_us");
    }
    report
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const UPLOT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("../../assets/uPlot.min.css");
const OUR_CSS: &str = include_str!("../../assets/report.css");
const OURS: &str = include_str!("../../assets/report.js");

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_text_of_a_report_can_leave_its_place() {
        let evil = "</script><script>alert(1)</script>";
        let page = html(&[json!({ "scenario": { "name": evil } })]);
        assert!(!page.contains(evil) && !page.contains("<script>alert"));
        assert!(page.contains("<title>&lt;/script&gt;"));
    }

    #[test]
    fn a_page_asks_the_network_for_nothing() {
        let page = html(&[json!({})]);
        assert!(!page.contains("src=") && !page.contains("<link") && !page.contains("@import"));
        assert!(page.contains("uPlot"));
    }
}
