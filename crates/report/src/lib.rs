//! Documents as text, JSON, Markdown, CSV and HTML.
//!
//! A report depends on documents only, not on machines. A study adds to its report by [`Notes`].
//! The text form fits 72 columns, so that it can be pasted into a mail. The JSON form has one
//! document per line.

mod changes;
pub mod compare;
mod csv;
pub mod figure;
mod holder;
mod html;
mod json;
mod limits;
mod markdown;
mod number;
mod pattern;
mod text;
mod trace;
mod words;

pub use changes::{MetricChange, Verdict, changes};
pub use csv::{CSV_HEAD, csv_rows};
pub use html::{HtmlError, curves_svg, html_page, settlement_page, settlement_svg};
pub use json::json_line;
pub use markdown::{markdown, markdown_page};
pub use text::{
    About, Calls, Letter, Notes, WIDTH, ablation_text, brief, foot_text, letter_text, lkp_text,
    page, robust_brief, robust_text, settlement_text, sweep_text, text, whatif_text, wrap,
};
pub use trace::{folded, perfetto, story};
