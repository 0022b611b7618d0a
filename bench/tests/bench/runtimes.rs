//! `nowait-bench runtimes`: all cells run, and the JSON has the shape of `report.rs`. No test depends on a
//! figure.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// All peers of this build.
const PEERS: [&str; 10] = [
    "pread",
    "spawn-blocking",
    "tokio-fs",
    "tokio-uring",
    "compio",
    "nowait",
    "nowait-thread-rings",
    "nowait-strict",
    "nowait-threads",
    "nowait-stream",
];

/// A directory of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn bench(&self, args: &[&str]) -> (bool, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_nowait-bench"))
            .current_dir(&self.0)
            .args([
                "runtimes", "--file", "data", "--size", "8M", "--rounds", "1",
            ])
            .args(["--seconds", "0.005", "--ring-build", "none"])
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        (output.status.success(), out, err)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_peer_does_every_cell() {
    let scratch = Scratch::new("smoke");
    let (done, out, err) = scratch.bench(&["--json", "--svg", "svg"]);
    assert!(done, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["area"], "runtimes");
    for key in ["kernel", "arch", "cores"] {
        assert!(!report["machine"][key].is_null(), "{key}");
    }
    assert_eq!(report["settings"]["rounds"], 1);
    let notes = report["notes"].as_array().unwrap();
    // A note for the peer that needs another build, and one for each chart.
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .starts_with("`tokio-fs-ring` is left out")
    );
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 25);
    for cell in cells {
        let write = cell["name"].as_str().unwrap().starts_with("write");
        let peers: Vec<&str> = PEERS
            .into_iter()
            .filter(|peer| !write || !["nowait-strict", "nowait-thread-rings"].contains(peer))
            .collect();
        let contenders = cell["contenders"].as_array().unwrap();
        let names: Vec<&str> = contenders
            .iter()
            .map(|peer| peer["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, peers, "{}", cell["name"]);
        for peer in contenders {
            let median = &peer["median"];
            assert!(median["ops_per_s"].as_f64() > Some(0.0), "{peer}");
            assert_eq!(median["tick_us"].is_object(), peer["name"] != "pread");
            assert_eq!(peer["rounds"].as_array().unwrap().len(), 1);
        }
    }
    for name in ["throughput", "p50", "p99", "tick"] {
        let svg = std::fs::read_to_string(scratch.0.join(format!("svg/mixed-{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("nowait-stream"));
    }
    assert!(!scratch.0.join("data.write").exists());
}

#[test]
fn tables_name_who_is_there_and_what_is_asked_wrongly_is_said() {
    let scratch = Scratch::new("tables");
    let (done, out, err) = scratch.bench(&["--cells", "cached-4K-1", "--peers", "pread,nowait"]);
    assert!(done, "{err}");
    assert!(
        out.contains("cached-4K-1") && out.contains("pread") && !out.contains("compio"),
        "{out}"
    );
    let (done, _, err) = scratch.bench(&["--cells", "lukewarm"]);
    assert!(
        !done && err.contains("no cell is called lukewarm; there are: cached-4K-1"),
        "{err}"
    );
    std::fs::write(scratch.0.join("data"), b"short").unwrap();
    let (done, _, err) = scratch.bench(&[]);
    assert!(!done && err.contains("smaller than --size"), "{err}");
}
