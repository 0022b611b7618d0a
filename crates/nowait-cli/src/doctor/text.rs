//! The report as text: as wide as the terminal and at most 80 columns, in sections, with colours if
//! requested.

use std::fmt::{self, Display, Write};

use super::checks::FalseEnds;
use super::fact::Fact;
use super::report::{Filesystem, NotMeasured, Report, SEED_BREAK_EVEN};
use crate::name::shown;

/// The maximum width of the text.
const WIDTH: usize = 80;
/// The minimum width. A narrower terminal breaks the lines.
const MIN_WIDTH: usize = 40;
/// The width of the table of costs with all its columns.
const TABLE: usize = 2 + 38 + 4 * 9;
/// The column at which answers begin.
const INDENT: usize = 22;

impl Report {
    /// The report as text.
    pub fn text(&self, style: Style) -> String {
        let mut page = TextReport {
            text: String::new(),
            style,
        };
        page.machine(self);
        page.verdict(self);
        page.kernel(self);
        page.filesystem(&self.filesystem);
        page.false_ends(&self.false_eof);
        page.costs(self);
        page.decisions(self);
        page.text
    }
}

/// The style of the text.
#[derive(Clone, Copy)]
pub struct Style {
    pub colour: bool,
    /// The width of the terminal in columns.
    pub width: usize,
}

/// Text that is being written. Writing to a `String` cannot fail.
struct TextReport {
    text: String,
    style: Style,
}

const BOLD: &str = "1";
const GREEN: &str = "32";
const RED: &str = "31";
const YELLOW: &str = "33";

impl TextReport {
    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    fn heading(&mut self, heading: impl Display) {
        let heading = self.painted(BOLD, heading);
        self.line(format_args!("\n{heading}"));
    }

    fn painted(&self, colour: &str, text: impl Display) -> String {
        if self.style.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// Writes a label and a text beside it. The text is wrapped at words.
    fn beside(&mut self, label: &str, answer: Option<(&str, &str)>, text: &str) {
        let _ = write!(self.text, "  {label:<width$}", width = INDENT - 2);
        let mut column = INDENT.max(label.len() + 3);
        if column > INDENT {
            self.text.push(' ');
        }
        if let Some((colour, word)) = answer {
            let gap = if text.is_empty() { "" } else { "  " };
            let padded = format!("{word:<3}");
            let word = if text.is_empty() { word } else { &padded };
            let painted = self.painted(colour, word);
            let _ = write!(self.text, "{painted}{gap}");
            column += word.len() + gap.len();
        }
        let indent = if answer.is_some() { INDENT + 5 } else { INDENT };
        self.words(text, column, indent);
    }

    /// Writes a text that is wrapped at words and indented by two columns.
    fn paragraph(&mut self, text: &str) {
        self.text.push_str("  ");
        self.words(text, 2, 2);
    }

    /// Writes words from a column on. Further lines begin at column `indent`.
    fn words(&mut self, text: &str, mut column: usize, indent: usize) {
        let width = self.style.width.clamp(MIN_WIDTH, WIDTH);
        for (i, word) in text.split_whitespace().enumerate() {
            let len = word.chars().count();
            if i > 0 && column + 1 + len > width {
                let _ = write!(self.text, "\n{:indent$}", "");
                column = indent;
            } else if i > 0 {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += len;
        }
        self.text.push('\n');
    }

    fn fact(&mut self, fact: &Fact) {
        let answer = match fact.ok {
            Some(true) => (GREEN, "yes"),
            Some(false) => (YELLOW, "no"),
            None => (YELLOW, "?"),
        };
        self.beside(&fact.label, Some(answer), fact.why.as_deref().unwrap_or(""));
    }

    fn machine(&mut self, report: &Report) {
        let m = &report.machine;
        let cpus = if m.cpus == 1 { "CPU" } else { "CPUs" };
        let text = format!(
            "nowait {}, Linux {} {}, {} {cpus}, pages of {}",
            report.version,
            m.release,
            m.arch,
            m.cpus,
            Bytes(Some(m.page_size as u64)),
        );
        self.words(&text, 0, 2);
    }

    /// The three lines that most readers want.
    fn verdict(&mut self, report: &Report) {
        self.line("");
        let backend = report.backend.name.unwrap_or("none");
        let text = format!("{backend}: {}", report.backend.why);
        self.beside("backend", None, &text);
        let facts = report.kernel.0.iter().filter(|fact| fact.ok == Some(false));
        let denied = facts.map(|fact| match &fact.why {
            Some(why) => format!("{}: {why}", fact.label.trim()),
            None => fact.label.trim().to_owned(),
        });
        let denied = denied.collect::<Vec<_>>().join("; ");
        let denied = match denied.as_str() {
            "" => "nothing that nowait uses",
            denied => denied,
        };
        self.beside("missing or denied", None, denied);
        let cost = |key| report.costs_ns.median(key);
        let (plain, tried) = (cost("pread_4k_hit"), cost("nowait_4k_hit"));
        let cached = tried.or(cost("ask_pread_4k_hit"));
        let engine = cost("handoff_owner_read_4k").or(cost("handoff_worker_read_4k"));
        let text = match (plain, cached, engine) {
            (Some(plain), Some(cached), Some(engine)) => format!(
                "{:.1} µs for 4 KiB in the calling thread ({:.1} × pread), {:.1} µs by the engine",
                cached / 1e3,
                cached / plain,
                engine / 1e3
            ),
            _ => "not measured; see below".to_owned(),
        };
        self.beside("a cached read", None, &text);
    }

    fn kernel(&mut self, report: &Report) {
        self.heading("Kernel and sandbox");
        const OPS: &str = "io_uring_op_";
        let (ops, facts): (Vec<&Fact>, Vec<&Fact>) =
            (report.kernel.0.iter()).partition(|fact| fact.key.starts_with(OPS));
        for fact in facts {
            self.fact(fact);
        }
        if !ops.is_empty() {
            let lacking: Vec<&str> = (ops.iter().filter(|op| op.ok != Some(true)))
                .map(|op| op.label.as_str())
                .collect();
            let (answer, text) = if lacking.is_empty() {
                let text = format!("all {} that nowait uses", ops.len());
                ((GREEN, "yes"), text)
            } else {
                let text = format!("done by workers: {}", lacking.join(", "));
                ((YELLOW, "no"), text)
            };
            self.beside("  operations", Some(answer), &text);
        }
        let m = &report.machine;
        if let Some(sysctl) = m.io_uring_disabled {
            let meaning = match sysctl {
                0 => "0: all processes may use io_uring",
                1 => "1: only kernel.io_uring_group and CAP_SYS_ADMIN may use it",
                _ => "2: disabled for all processes",
            };
            self.beside("io_uring_disabled", None, meaning);
        }
        self.beside("RLIMIT_MEMLOCK", None, &Bytes(m.memlock).to_string());
        let files = m.nofile.map_or("unlimited".into(), |n| n.to_string());
        self.beside("RLIMIT_NOFILE", None, &files);
    }

    fn filesystem(&mut self, fs: &Filesystem) {
        self.heading(format_args!("Filesystem of {}", shown(&fs.path)));
        let name = fs.name.unwrap_or("unknown kind");
        let device = fs.device.as_deref().unwrap_or("unknown");
        self.beside("type", None, &format!("{name}, device {device}"));
        let why = fs.why.as_deref();
        match (&fs.tried_on, why) {
            (Some(on), None) => self.beside("tried on", None, on),
            (Some(on), Some(why)) => self.beside("tried on", None, &format!("{on}: {why}")),
            (None, why) => self.beside("not tried", None, why.unwrap_or("")),
        }
        for fact in &fs.facts.0 {
            self.fact(fact);
        }
    }

    fn false_ends(&mut self, ends: &FalseEnds) {
        self.heading("False end of file");
        match (ends.tested, ends.false_ends) {
            (Some(tested), Some(0)) => {
                self.line(format_args!("  none in {tested} cold NOWAIT reads"));
            }
            (Some(tested), Some(wrong)) => {
                let bug = self.painted(RED, "KERNEL BUG:");
                self.paragraph(&format!(
                    "{bug} {wrong} of {tested} cold NOWAIT reads returned 0 before the end of file. \
                     nowait checks the file size and is not affected. Other programs that use \
                     RWF_NOWAIT may lose data with this kernel. Use another kernel."
                ));
            }
            _ => {
                let why = ends.why.as_deref().unwrap_or("");
                self.beside("not tested", None, why);
            }
        }
    }

    fn costs(&mut self, report: &Report) {
        self.heading("Costs in ns");
        let rows = (report.costs_ns.rows.iter()).filter_map(|row| Some((row, row.spread.ok()?)));
        if self.style.width < TABLE {
            self.line(" median");
            for (row, spread) in rows {
                let _ = write!(self.text, "{:>7} ", spread.median);
                self.words(row.label, 8, 8);
            }
        } else {
            self.line(format_args!(
                "  {:<38}{:>9}{:>9}{:>9}{:>9}",
                "", "median", "p10", "p90", "2015*"
            ));
            for (row, s) in rows {
                let seed = row.seed.map_or(String::new(), |ns| ns.to_string());
                let line = format!(
                    "  {:<38}{:>9}{:>9}{:>9}{seed:>9}",
                    row.label, s.median, s.p10, s.p90
                );
                self.line(line.trim_end());
            }
            self.paragraph(
                "* fincore() and 1-byte reads on \"a slow machine\", kernel list, April 2015",
            );
        }
        for (i, (why, labels)) in report.not_measured.by_reason().iter().enumerate() {
            let label = if i == 0 { "not measured" } else { "" };
            let what = match labels.as_slice() {
                [first, _, _, _, rest @ ..] => format!("{first}, and {} more", rest.len() + 3),
                few => few.join("; "),
            };
            self.beside(label, None, &format!("{what}: {why}"));
        }
    }

    fn decisions(&mut self, report: &Report) {
        self.heading("Break-even hit rate");
        match report.break_even {
            Some(rate) => self.beside(
                &percent(rate),
                None,
                "With a higher hit rate, trying the page cache first costs less than an immediate \
                 handoff to the engine. With a lower one, it costs more.",
            ),
            None => self.beside("unknown", None, "the necessary costs were not measured"),
        }
        if let Some(rate) = report.ask_first_break_even {
            let seed = percent(SEED_BREAK_EVEN);
            let text = format!(
                "With a higher hit rate, a NOWAIT try costs less than querying residency before a \
                 read ({seed} on the kernel mailing list in 2015)."
            );
            self.beside(&percent(rate), None, &text);
        }
        self.heading("Decisions of nowait");
        let plan = &report.plan;
        let [eager_why, strict_why] = plan.whys;
        for (label, name, why) in [
            ("plan, eager mode", &plan.eager, eager_why),
            ("plan, strict mode", &plan.strict, strict_why),
        ] {
            let text = match (name, why) {
                (Some(name), Some(why)) => format!("{name}: {why}"),
                _ => format!("unknown: {}", plan.why),
            };
            self.beside(label, None, &text);
        }
    }
}

impl NotMeasured {
    /// The labels grouped by reason, in the order of their first appearance.
    fn by_reason(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for (_, label, why) in &self.0 {
            match groups.iter_mut().find(|(known, _)| known == why) {
                Some((_, labels)) => labels.push(label),
                None => groups.push((why, vec![label])),
            }
        }
        groups
    }
}

fn percent(rate: f64) -> String {
    format!("{:.0} %", rate * 100.0)
}

/// A size with a unit; `None` is unlimited.
struct Bytes(Option<u64>);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.0 else {
            return f.write_str("unlimited");
        };
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let fits = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
        match units.iter().find(|(unit, _)| fits(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", bytes / unit),
            None => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> TextReport {
        TextReport {
            text: String::new(),
            style: Style {
                colour: false,
                width: WIDTH,
            },
        }
    }

    #[test]
    fn false_ends_of_file_are_reported_as_a_kernel_bug() {
        let mut page = page();
        page.false_ends(&FalseEnds {
            tested: Some(64),
            false_ends: Some(3),
            why: None,
        });
        assert!(page.text.contains("KERNEL BUG: 3 of 64"), "{}", page.text);
        assert!(page.text.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn long_answers_are_wrapped_at_words_and_aligned() {
        let mut page = page();
        page.beside("label", Some((RED, "no")), &"word ".repeat(40));
        let lines: Vec<&str> = page.text.lines().collect();
        assert!(lines.len() > 2);
        for line in &lines {
            assert!(line.len() <= WIDTH && !line.ends_with(' '), "{line:?}");
        }
        assert!(lines[0].starts_with("  label               no   word"));
        assert_eq!(lines[1].find("word"), Some(INDENT + 5));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(Bytes(Some(8 << 20)).to_string(), "8 MiB");
        assert_eq!(Bytes(Some(1025)).to_string(), "1025 bytes");
        assert_eq!(Bytes(None).to_string(), "unlimited");
    }
}
