//! fio as a contender: the same files, block, depth, amount and advice, with an engine of fio's.
//!
//! Rates and latencies are fio's own (its JSON), so its start and end don't count. Processor time
//! and context switches are those of its whole process, because what fio itself reports leaves out
//! helper threads; what its start and end take (more than a tenth of a second of processor time)
//! is measured once by runs with a single read, and subtracted.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::contender::{Fit, Way};
use crate::harness::offsets::Order;
use crate::harness::round::{Percentiles, Round};
use crate::harness::settings::{Advice, Amount};
use crate::harness::turn::Turn;
use crate::harness::usage::Usage;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// Whether fio is here and has this engine.
pub fn fits(engine: &str) -> Fit {
    // The list of its engines: asked about a single one it fails for those without options.
    let known = Command::new("fio").arg("--enghelp").output().map(|output| {
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .any(|line| line.trim() == engine)
    });
    match known {
        Ok(true) => Fit::With(
            "fio: rates and latencies are its own; processor time and switches are of its whole \
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

/// fio with this engine.
pub fn way(engine: &'static str) -> Way {
    let fio = Fio::new(engine);
    Box::new(move |turn| fio.play(turn, &["--rw=randread", "--readonly"]))
}

/// fio as a contender, which knows what its start and end take.
pub struct Fio {
    engine: &'static str,
    start: OnceCell<Usage>,
}

impl Fio {
    /// With this engine.
    pub fn new(engine: &'static str) -> Fio {
        Fio {
            engine,
            start: OnceCell::new(),
        }
    }

    /// One turn, of what these options say.
    pub fn play(&self, turn: &Turn<'_>, options: &[&str]) -> Result<Round, Problem> {
        let start = self
            .start
            .get_or_init(|| start_and_end(turn, self.engine, options).unwrap_or_default());
        let (ops, seconds, lat_us, used) = play(turn, self.engine, options, turn.amount)?;
        Ok(Round {
            lat_us,
            cut_short: turn.stop.asked(),
            ..Round::new(ops, turn.block, seconds, used - *start)
        })
    }
}

/// What a run takes that reads a single block: the median of three.
fn start_and_end(turn: &Turn<'_>, engine: &str, options: &[&str]) -> Result<Usage, Problem> {
    let mut runs = (0..3)
        .map(|_| Ok(play(turn, engine, options, Amount::Ops(1))?.3))
        .collect::<Result<Vec<Usage>, Problem>>()?;
    runs.sort_by(|a, b| a.cpu().total_cmp(&b.cpu()));
    Ok(runs[1])
}

/// What fio says of itself: reads or writes, seconds, latencies.
type Said = (u64, f64, Option<Percentiles>);

/// One run of fio.
fn play(
    turn: &Turn<'_>,
    engine: &str,
    options: &[&str],
    amount: Amount,
) -> Result<(u64, f64, Option<Percentiles>, Usage), Problem> {
    let before = Usage::of_children();
    let child = command(turn, engine, amount)
        .args(options)
        .spawn()
        .map_err(|e| Problem::of("cannot start fio", e))?;
    let said = end(child, turn.stop)?;
    let used = Usage::of_children() - before;
    let (ops, seconds, lat_us) = read(&said).ok_or_else(|| {
        Problem::Failed(format!(
            "cannot make sense of what fio says: {}",
            said.chars().take(300).collect::<String>()
        ))
    })?;
    Ok((ops, seconds, lat_us, used))
}

/// Waits for fio, passes Ctrl-C on to it, and returns what it printed.
pub fn end(mut child: Child, stop: &Stop) -> Result<String, Problem> {
    let mut told = false;
    while child
        .try_wait()
        .map_err(|e| Problem::of("fio", e))?
        .is_none()
    {
        if stop.asked() && !told {
            told = true;
            // A Ctrl-C at a terminal has reached it already; a kill of this process has not.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    collect(child)
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
        .arg("--name=nowait-bench")
        .args(["--output-format=json", "--invalidate=1", "--thread"])
        .args(["--clat_percentiles=0", "--lat_percentiles=1"])
        .arg("--percentile_list=50:90:99:99.9")
        .arg(filename)
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--iodepth={}", turn.depth))
        .arg(format!("--bs={}", turn.block))
        .arg(format!("--filesize={}", turn.files.sizes[0]))
        .arg(format!("--size={}", turn.files.total()))
        // It takes no more than 63 bits.
        .arg(format!("--randseed={}", turn.seed >> 1))
        .arg(match turn.advice {
            Advice::Random => "--fadvise_hint=random",
            Advice::Normal => "--fadvise_hint=0",
        });
    match amount {
        Amount::Ops(ops) => command.arg(format!("--io_size={}", ops * turn.block)),
        // Not --time_based: when each block was read once it ends, as the others do.
        Amount::Seconds(seconds) => command.arg(format!("--runtime={}ms", (seconds * 1e3).ceil())),
    };
    if let (Order::Any, Amount::Seconds(_)) = (turn.order, amount) {
        command.args(["--norandommap", "--time_based"]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// fio separates names by colons.
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

/// What it printed. Its output is far less than a pipe holds, so nobody had to read it meanwhile.
fn collect(child: Child) -> Result<String, Problem> {
    let output = child
        .wait_with_output()
        .map_err(|e| Problem::of("fio", e))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // fio ends with an error code after an interrupt too, and still says what it measured.
    if output.status.success() || said.contains("\"jobs\"") {
        Ok(said)
    } else {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Problem::of(
            "fio failed",
            if why.is_empty() { said } else { why }.trim(),
        ))
    }
}

/// Takes in fio's JSON, before which it may have printed remarks.
fn read(said: &str) -> Option<Said> {
    let json: Value = serde_json::from_str(&said[said.find('{')?..]).ok()?;
    let job = json.get("jobs")?.get(0)?;
    let error = job.get("error").and_then(Value::as_i64).unwrap_or(0);
    let did = |what: &str| {
        job.get(what)
            .filter(|did| did["total_ios"].as_u64() > Some(0))
    };
    let read = did("read").or(did("write"))?;
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
            max: lat.get("max")?.as_f64()? / 1e3,
        })
    })();
    (error == 0).then_some((ops, seconds, lat_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_colons_stay_one_name() {
        assert_eq!(escaped(b"/a:b"), OsString::from("/a\\:b"));
    }

    #[test]
    fn remarks_before_the_json_are_skipped() {
        let said = r#"fio: a remark
            {"jobs": [{"error": 0, "read": {"total_ios": 100, "iops": 50.0, "lat_ns": {"max": 9000,
            "percentile": {"50.000000": 1000, "90.000000": 2000, "99.000000": 3000,
            "99.900000": 4000}}}}]}"#;
        let (ops, seconds, lat_us) = read(said).unwrap();
        assert_eq!((ops, seconds), (100, 2.0));
        assert_eq!(lat_us.unwrap().p999, 4.0);
        assert!(read("{}").is_none());
    }
}
