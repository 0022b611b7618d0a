//! fio as a contender: the same files, block, depth, amount and advice, with an engine of fio.
//!
//! Rates and latencies are fio's own (its JSON), so they leave out its start and end. Processor
//! time and context switches are those of the whole process, because fio's own figures leave out
//! helper threads. Its start and end take more than a tenth of a second of processor time. Runs
//! with a single read measure this once, and it is subtracted.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use serde_json::Value;

use crate::harness::child;
use crate::harness::contender::Fit;
use crate::harness::percentiles::Percentiles;
use crate::harness::round::Round;
use crate::harness::settings::Amount;
use crate::harness::turn::Turn;
use crate::harness::usage::Usage;
use nowait_cli::problem::Problem;

/// Returns if fio is installed and has this engine.
pub fn fits(engine: &str) -> Fit {
    // --enghelp lists all engines. With the name of an engine it fails for engines without options.
    let known = Command::new("fio").arg("--enghelp").output().map(|output| {
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .any(|line| line.trim() == engine)
    });
    match known {
        Ok(true) => Fit::With(
            "fio: rates and latencies are its own; processor time and switches are those of its whole \
             process, less those of a run with a single read"
                .into(),
        ),
        Ok(false) => Fit::No(format!(
            "this fio has no engine `{engine}`: leave out `fio-{engine}`"
        )),
        Err(_) => Fit::No(
            "fio is not installed: install the package `fio` (apt-get install fio), or leave its \
             contenders out"
                .into(),
        ),
    }
}

/// fio as a contender, with the cost of its start and end.
pub struct Fio {
    pub engine: &'static str,
    options: &'static [&'static str],
    start: OnceCell<Usage>,
}

/// fio's own figures: operations, seconds, latencies.
type Said = (u64, f64, Option<Percentiles>);

impl Fio {
    /// fio with this engine and its options.
    pub fn new(engine: &'static str, options: &'static [&'static str]) -> Fio {
        Fio {
            engine,
            options,
            start: OnceCell::new(),
        }
    }

    /// Runs one turn of random reads. `options` are those of the turn.
    pub fn play(&self, turn: &Turn<'_>, options: &[String]) -> Result<Round, Problem> {
        let start = || self.start_and_end(turn, options).unwrap_or_default();
        let start = *self.start.get_or_init(start);
        let ((ops, seconds, lat_us), used) = self.run(turn, options, turn.amount)?;
        Ok(Round {
            lat_us,
            ..Round::new(ops, turn.block, seconds, used - start)
        })
    }

    /// The use of the processor by a run that reads a single block: the median of three runs.
    fn start_and_end(&self, turn: &Turn<'_>, options: &[String]) -> Result<Usage, Problem> {
        let mut runs = (0..3)
            .map(|_| Ok(self.run(turn, options, Amount::Ops(1))?.1))
            .collect::<Result<Vec<Usage>, Problem>>()?;
        runs.sort_by(|a, b| a.cpu().total_cmp(&b.cpu()));
        Ok(runs[1])
    }

    fn run(
        &self,
        turn: &Turn<'_>,
        options: &[String],
        amount: Amount,
    ) -> Result<(Said, Usage), Problem> {
        let mut command = command(turn, self.engine, amount);
        command.args(options).args(self.options);
        let ended = child::run(command, true, turn.stop)?.ok_or(Problem::Interrupted)?;
        let said = read(&ended.said).ok_or_else(|| no_figures(&ended.said))?;
        Ok((said, ended.used))
    }
}

fn command(turn: &Turn<'_>, engine: &str, amount: Amount) -> Command {
    let mut names = OsString::new();
    for (i, path) in turn.files.paths.iter().enumerate() {
        if i > 0 {
            names.push(":");
        }
        names.push(escaped(path.as_os_str().as_bytes()));
    }
    let mut filename = OsString::from("--filename=");
    filename.push(names);
    let mut command = Command::new("fio");
    command
        .args(["--name=nowait-bench", "--rw=randread", "--readonly"])
        .args(["--output-format=json", "--invalidate=1", "--thread"])
        .args(["--clat_percentiles=0", "--lat_percentiles=1"])
        .arg("--percentile_list=50:90:99:99.9:99.99")
        .arg(filename)
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--iodepth={}", turn.depth))
        .arg(format!("--bs={}", turn.block))
        .arg(format!("--filesize={}", turn.files.sizes[0]))
        .arg(format!("--size={}", turn.files.total()))
        // fio accepts 63 bits.
        .arg(format!("--randseed={}", turn.seed >> 1))
        .arg("--fadvise_hint=0");
    match amount {
        Amount::Ops(ops) => command.arg(format!("--io_size={}", ops * turn.block)),
        Amount::Seconds(seconds) => command
            .args(["--norandommap", "--time_based"])
            .arg(format!("--runtime={}ms", (seconds * 1e3).ceil())),
    };
    command
}

/// Escapes a name, because fio separates names by colons.
pub fn escaped(name: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        if byte == b':' || byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

/// The jobs of fio's JSON. fio may print messages before it.
pub fn jobs(said: &str) -> Option<Vec<Value>> {
    let mut json: Value = serde_json::from_str(&said[said.find('{')?..]).ok()?;
    serde_json::from_value(json.get_mut("jobs")?.take()).ok()
}

/// The message if there are none.
pub fn no_figures(said: &str) -> Problem {
    let said: String = said.chars().take(300).collect();
    Problem::Failed(format!("fio printed no figures: {said}"))
}

/// Reads the figures of fio's first job; `None` if it has read nothing.
fn read(said: &str) -> Option<Said> {
    let jobs = jobs(said)?;
    let job = jobs.first()?;
    let error = job.get("error").and_then(Value::as_i64).unwrap_or(0);
    let read = job.get("read")?;
    let ops = read.get("total_ios")?.as_u64()?;
    let rate = read.get("iops")?.as_f64()?;
    let seconds = if rate > 0.0 { ops as f64 / rate } else { 0.0 };
    let lat = read.get("lat_ns")?;
    let at = |p: &str| Some(lat.get("percentile")?.get(p)?.as_f64()? / 1e3);
    let lat_us = (|| {
        Some(Percentiles {
            p50: at("50.000000")?,
            p90: at("90.000000")?,
            p99: at("99.000000")?,
            p999: at("99.900000")?,
            p9999: at("99.990000")?,
            max: lat.get("max")?.as_f64()? / 1e3,
        })
    })();
    (error == 0 && ops > 0).then_some((ops, seconds, lat_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_colons_stay_one_name() {
        assert_eq!(escaped(b"/a:b"), OsString::from("/a\\:b"));
    }

    #[test]
    fn messages_before_the_json_are_skipped() {
        let said = r#"fio: a message
            {"jobs": [{"error": 0, "read": {"total_ios": 100, "iops": 50.0, "lat_ns": {"max": 9000,
            "percentile": {"50.000000": 1000, "90.000000": 2000, "99.000000": 3000,
            "99.900000": 4000, "99.990000": 5000}}}}]}"#;
        let (ops, seconds, lat_us) = read(said).unwrap();
        assert_eq!((ops, seconds), (100, 2.0));
        assert_eq!(lat_us.unwrap().p999, 4.0);
        assert!(read("{}").is_none());
    }
}
