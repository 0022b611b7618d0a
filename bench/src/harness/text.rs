//! Text for terminals: numbers, colours and line breaks.

use nowait_cli::terminal::Terminal;
use textwrap::{Options, fill};

use nowait_cli::interval::Verdict;

/// Three significant digits.
pub fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Colours of a terminal.
#[derive(Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// The colours of standard output.
    pub fn look() -> Paint {
        Paint(Terminal::look().colour)
    }

    /// No colours.
    #[cfg(test)]
    pub fn plain() -> Paint {
        Paint(false)
    }

    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Green for better, red for worse.
    pub fn verdict(self, text: &str, verdict: Option<Verdict>) -> String {
        match verdict {
            Some(Verdict::Better) => self.with("32", text),
            Some(Verdict::Worse) => self.with("31", text),
            None => text.into(),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }
}

/// Adds a note, in lines of at most 100 columns.
pub fn remark(text: &mut String, paint: Paint, note: &str) {
    let note = format!("{} {note}", paint.bold("Note:"));
    *text += &fill(&note, Options::new(100).subsequent_indent("      "));
    text.push('\n');
}

/// Adds words, in lines of at most 100 columns.
pub fn wrapped(text: &mut String, words: &str) {
    *text += &fill(words, 100);
    text.push('\n');
}
