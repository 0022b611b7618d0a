//! The results, in types that are serialized to JSON. [`super::text`] formats them as text.

use serde::{Serialize, Serializer};

use super::checks::{Alignment, Checks, FalseEnds};
use super::fact::Facts;
use super::test_file::{Selected, TestFile};

use crate::name::shown;

/// The version of the JSON format.
const JSON_FORMAT: u32 = 1;
/// The break-even hit rate of fincore() + pread() and preadv2(), from the kernel mailing list in
/// 2015.
pub const SEED_BREAK_EVEN: f64 = 0.3;

/// All results.
#[derive(Serialize)]
pub struct Report {
    pub doctor: u32,
    pub version: &'static str,
    pub machine: Machine,
    pub kernel: Facts,
    pub filesystem: Filesystem,
    pub false_eof: FalseEnds,
    pub costs_ns: CostTable,
    pub not_measured: NotMeasured,
    pub break_even: Option<f64>,
    pub ask_first_break_even: Option<f64>,
    pub seed_break_even: f64,
    pub backend: Backend,
    pub plan: Plans,
}

/// The machine's properties.
#[derive(Serialize)]
pub struct Machine {
    pub release: String,
    pub arch: String,
    pub cpus: usize,
    pub page_size: usize,
    pub memlock: Option<u64>,
    pub nofile: Option<u64>,
    pub io_uring_disabled: Option<u32>,
}

/// The filesystem of the path.
#[derive(Serialize)]
pub struct Filesystem {
    pub path: String,
    pub name: Option<&'static str>,
    pub device: Option<String>,
    pub tried_on: Option<String>,
    pub why: Option<String>,
    pub direct_alignment: Option<Alignment>,
    #[serde(flatten)]
    pub facts: Facts,
}

/// The cost of one call in nanoseconds.
#[derive(Clone, Copy, Serialize)]
pub struct Spread {
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
}

/// One row of the table.
pub struct Row {
    pub key: &'static str,
    pub label: &'static str,
    /// The cost in nanoseconds in the fincore() thread of 2015.
    pub seed: Option<u32>,
    pub spread: Result<Spread, &'static str>,
}

/// The table of costs. In JSON it is an object with the measured rows.
#[derive(Default)]
pub struct CostTable {
    /// The measured costs.
    pub rows: Vec<Row>,
}

/// Hit rates at which two methods cost the same.
#[derive(Clone, Copy)]
pub struct BreakEven {
    /// A NOWAIT try, and an immediate handoff.
    pub trying: Option<f64>,
    /// A NOWAIT try, and a residency query before the read.
    pub asking: Option<f64>,
}

impl CostTable {
    /// Adds a row: samples in nanoseconds, or the reason why there are none.
    pub fn row(
        &mut self,
        key: &'static str,
        label: &'static str,
        seed: Option<u32>,
        samples: Result<Vec<f64>, &'static str>,
    ) {
        let spread = samples.map(|mut ns| {
            ns.sort_by(f64::total_cmp);
            let at = |q: f64| ns[((ns.len() - 1) as f64 * q).round() as usize].round();
            Spread {
                median: at(0.5),
                p10: at(0.1),
                p90: at(0.9),
            }
        });
        self.rows.push(Row {
            key,
            label,
            seed,
            spread,
        });
    }

    /// The median of a measured row.
    pub fn median(&self, key: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.key == key)?;
        Some(row.spread.as_ref().ok()?.median)
    }

    fn lacking(&self) -> NotMeasured {
        let rows = self.rows.iter();
        NotMeasured(
            rows.filter_map(|row| Some((row.key, row.label, row.spread.err()?)))
                .collect(),
        )
    }
}

impl Serialize for CostTable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rows = self.rows.iter();
        to.collect_map(rows.filter_map(|row| Some((row.key, row.spread.ok()?))))
    }
}

/// The key, label and reason of each row that was not measured.
pub struct NotMeasured(pub Vec<(&'static str, &'static str, &'static str)>);

impl Serialize for NotMeasured {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, _, why)| (key, why)))
    }
}

/// The backend of an engine with default options, and why it was chosen.
#[derive(Serialize)]
pub struct Backend {
    pub name: Option<&'static str>,
    pub why: String,
}

/// The library's plans for a 4 KiB read.
#[derive(Serialize)]
pub struct Plans {
    pub eager: Option<String>,
    pub strict: Option<String>,
    pub why: String,
    /// The reason for the eager plan and the reason for the strict plan.
    #[serde(skip)]
    pub whys: [Option<&'static str>; 2],
}

impl Report {
    /// The report of these results.
    pub fn new(
        machine: Machine,
        kernel: Facts,
        test_file: &TestFile,
        checks: Checks,
        (costs, break_even): (CostTable, BreakEven),
        backend: Backend,
        plan: Plans,
    ) -> Report {
        let known = test_file.filesystem();
        let (tried_on, why) = match &test_file.selected {
            Selected::Temporary(_, dir) => {
                (Some(format!("a temporary file in {}", shown(&dir))), None)
            }
            Selected::Given(why) => (
                Some("the file itself, read-only".to_owned()),
                Some(why.clone()),
            ),
            Selected::None(why) => (None, Some(why.clone())),
        };
        Report {
            doctor: JSON_FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            machine,
            kernel,
            filesystem: Filesystem {
                path: test_file.path.to_string_lossy().into_owned(),
                name: known.and_then(|fs| fs.name()),
                device: known.map(|fs| {
                    let dev = fs.device();
                    format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev))
                }),
                tried_on,
                why,
                direct_alignment: checks.direct,
                facts: checks.facts,
            },
            false_eof: checks.false_ends,
            not_measured: costs.lacking(),
            break_even: break_even.trying,
            ask_first_break_even: break_even.asking,
            seed_break_even: SEED_BREAK_EVEN,
            costs_ns: costs,
            backend,
            plan,
        }
    }
}
