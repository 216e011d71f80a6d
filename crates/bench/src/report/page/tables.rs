//! Tables that fit a narrow screen: each row becomes a block, in which every value has the name of
//! its column.

use super::escape_html;
use std::fmt::Write as _;

/// A row: its heading and its cells. A cell may have a second line.
pub(super) type HtmlRow = (String, Vec<HtmlCell>);

#[derive(Clone, Debug, Default)]
pub(super) struct HtmlCell {
    pub(super) value: String,
    pub(super) more: String,
}

impl From<String> for HtmlCell {
    fn from(value: String) -> HtmlCell {
        HtmlCell { value, more: String::new() }
    }
}

/// Writes an HTML table. The first of `heads` is the heading of the column with the rows' names.
pub(super) fn table(caption: &str, heads: &[String], rows: &[HtmlRow], out: &mut String) {
    let _ = writeln!(out, "<div class=\"scroll\">\n<table role=\"table\">");
    let _ = writeln!(out, "<caption>{}</caption>", escape_html(caption));
    let _ = write!(out, "<thead role=\"rowgroup\"><tr role=\"row\">");
    for head in heads {
        let _ = write!(out, "<th role=\"columnheader\" scope=\"col\">{}</th>", escape_html(head));
    }
    let _ = writeln!(out, "</tr></thead>\n<tbody role=\"rowgroup\">");
    for (name, cells) in rows {
        let name = escape_html(name);
        let _ = write!(out, "<tr role=\"row\"><th role=\"rowheader\" scope=\"row\">{name}</th>");
        for (cell, head) in cells.iter().zip(&heads[1..]) {
            let more = match cell.more.as_str() {
                "" => String::new(),
                more => format!(" <small>{}</small>", escape_html(more)),
            };
            let _ = write!(
                out,
                "<td role=\"cell\" data-head=\"{}\"><span>{}{more}</span></td>",
                escape_html(head),
                escape_html(&cell.value)
            );
        }
        let _ = writeln!(out, "</tr>");
    }
    let _ = writeln!(out, "</tbody>\n</table>\n</div>");
}
