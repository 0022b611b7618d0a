//! `nowait-bench report`: the page, in a real browser, and the way to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;
use serde_json::Value;

use crate::common::{Said, directory, drop_in, is_missing, nowait_bench, run, spawned};

/// The command of a report as short as possible.
fn report(out: &Path, more: &[&str]) -> Command {
    let mut command = nowait_bench(["report", "--minutes", "0", "--out"]);
    command.arg(out).args(more);
    command
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn files_that_are_not_of_a_report_are_left_alone() {
    for name in ["data/mine", "index.html", "mix.json.old"] {
        let here = directory();
        let mine = here.path().join(name);
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(&mine, "mine").unwrap();
        let said = run(&mut report(here.path(), &["--parts", "syscalls"]));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("is not of a report"), "{said:?}");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(entries(here.path()).len(), 1, "{name}");
    }
}

/// The checks of the page in the browser.
#[derive(Debug, Deserialize)]
struct Checks {
    width: f64,
    /// The width of the page: wider than the window if something sticks out.
    page: f64,
    /// Rows and columns of each table, by its label and place.
    tables: Vec<(String, usize, usize, bool)>,
    /// The charts that are shown: the id, and the number of texts in it.
    charts: Vec<(String, usize)>,
    /// Words in a chart that overlap or leave the chart.
    overlaps: Vec<String>,
    text: String,
}

/// Runs in the page, and sends its results to the page around it.
const SCRIPT: &str = r#"<script>
const charts = [], overlaps = [];
for (const figure of document.querySelectorAll("figure")) {
  const shown = [...figure.querySelectorAll("[role=img] svg")].filter(svg => svg.getClientRects().length);
  for (const svg of shown) {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim());
    charts.push([figure.id, texts.length]);
    const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([a, one], i) => {
      if (one.left < box.left - 1 || one.right > box.right + 1 || one.bottom > box.bottom + 1)
        overlaps.push(figure.id + ": " + a + " leaves the chart");
      for (const [b, other] of boxes.slice(i + 1))
        if (one.left < other.right - 1 && other.left < one.right - 1 &&
            one.top < other.bottom - 2 && other.top < one.bottom - 2)
          overlaps.push(figure.id + ": " + a + " on " + b);
    });
  }
}
const tables = [...document.querySelectorAll("table")].map(table => {
  const columns = table.tHead.rows[0].cells.length;
  const rows = [...table.tBodies[0].rows];
  return [table.getAttribute("aria-label"), rows.length, columns, rows.every(r => r.cells.length == columns)];
});
const checks = { width: innerWidth, page: document.documentElement.scrollWidth, tables, charts, overlaps,
  text: document.body.innerText };
parent.postMessage(JSON.stringify(checks).replace(/[<>&\u0080-\uffff]/g,
  c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")), "*");
</script>"#;

/// A page that shows another one at a width, and has its results. A window cannot be narrower than 500
/// pixels.
fn frame(width: u32, inner: &str) -> String {
    format!(
        r#"<!DOCTYPE html><iframe src="{inner}" width="{width}" height="1000" style="border: 0"></iframe>
<script>
addEventListener("message", event => {{
  const out = document.createElement("script");
  out.type = "application/json"; out.id = "checks"; out.textContent = event.data;
  document.body.append(out);
}});
</script>"#
    )
}

/// Opens a page in Chromium at this width. No message may appear on its console.
fn browse(page: &Path, width: u32) -> Checks {
    let html = fs::read_to_string(page).unwrap();
    let inner = html.replace("</body>", &format!("{SCRIPT}</body>"));
    fs::write(page.with_file_name("checked.html"), inner).unwrap();
    let copy = page.with_file_name("frame.html");
    fs::write(&copy, frame(width, "checked.html")).unwrap();
    let profile = directory();
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .args([
            "--window-size=1600,1100",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", copy.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium: scripts/install-deps.sh installs it");
    let said = Said::of(&output);
    assert!(!said.err.contains("CONSOLE"), "{}", said.err);
    let found = said
        .out
        .split_once(r#"id="checks">"#)
        .expect("the script ran")
        .1;
    let found = found.split_once("</script>").unwrap().0;
    serde_json::from_str(found).unwrap()
}

#[test]
fn all_parts_make_a_page_that_a_browser_shows_at_any_width() {
    if is_missing(&[
        "chromium", "fio", "bfs", "vmtouch", "fincore", "rsync", "restic",
    ]) {
        return;
    }
    let here = directory();
    let out = here.path().join("out");
    let library = drop_in();
    let libraries = library.parent().unwrap().to_str().unwrap();
    let said = run(&mut report(&out, &["--libraries", libraries]));
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = out.join("index.html");
    assert_eq!(said.out.trim(), page.to_str().unwrap());
    let is_directory = |path: &PathBuf| path.is_dir();
    assert_eq!(entries(&out).iter().find(|path| is_directory(path)), None);

    let results = json(&out.join("report.json"));
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("http://") || !html.contains("src=\"http"),
        "it needs the network"
    );
    let mut drawn: Vec<String> = Vec::new();
    for (part, run) in results.as_object().unwrap() {
        let whole = json(&out.join(part).with_extension("json"));
        assert!(!whole["tables"].as_array().unwrap().is_empty(), "{part}");
        for chart in run["charts"].as_array().unwrap() {
            drawn.push(format!("chart-{}", chart["name"].as_str().unwrap()));
        }
    }
    for part in [
        "mix",
        "aio",
        "randread",
        "hitrate",
        "race",
        "iops",
        "dir",
        "seeks",
        "ahead",
        "tools",
        "keep-cache",
        "cached",
        "server",
        "server-cold",
        "object-store",
    ] {
        assert!(
            results[part].is_object(),
            "{part} was left out: {}",
            said.err
        );
    }
    for (width, least) in [(400, 390.0), (1400, 1380.0)] {
        let checks = browse(&page, width);
        assert!(
            checks.width >= least && checks.page <= checks.width,
            "{width}: {}",
            checks.page
        );
        for (title, rows, columns, whole) in &checks.tables {
            assert!(
                *rows > 0 && *columns > 1 && *whole,
                "{title}: {rows} x {columns}"
            );
        }
        let shown: Vec<&String> = checks.charts.iter().map(|(id, _)| id).collect();
        assert_eq!(
            shown,
            drawn.iter().collect::<Vec<_>>(),
            "each chart is shown once"
        );
        for (id, texts) in &checks.charts {
            // Two axes with a label and two ticks each.
            assert!(*texts >= 6, "{id}: {texts}");
        }
        assert_eq!(
            checks.overlaps,
            Vec::<String>::new(),
            "at a width of {width}"
        );
        // A figure of each published table, and the parts of each section.
        for word in [
            "2276.69",
            "73.821",
            "1755",
            "1620K",
            "1710",
            "f1",
            "getdents+stat",
            "Losses",
        ] {
            assert!(checks.text.contains(word), "{word}");
        }
    }
    let summary = fs::read_to_string(out.join("summary.md")).unwrap();
    assert!(summary.contains("| preadv | 73.821 |") && summary.contains("# Losses"));
}

#[test]
fn a_part_that_was_measured_is_not_measured_again() {
    let here = directory();
    run(&mut report(here.path(), &["--parts", "ring"])).done();
    let path = here.path().join("ring.json");
    let first = fs::read(&path).unwrap();
    run(&mut report(here.path(), &["--parts", "syscalls,ring"])).done();
    assert!(here.path().join("syscalls.json").exists());
    assert_eq!(fs::read(&path).unwrap(), first);
    // Another length is another command.
    let mut longer = nowait_bench(["report", "--minutes", "2", "--parts", "ring", "--out"]);
    run(longer.arg(here.path())).done();
    assert_ne!(fs::read(&path).unwrap(), first);
}

#[test]
fn a_part_that_cannot_run_is_left_out_with_its_reason() {
    let here = directory();
    let mut command = report(here.path(), &["--parts", "aio,syscalls"]);
    let said = run(command.env("PATH", "/nonexistent"));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("`aio` is left out: ") && said.err.contains("fio"),
        "{said:?}"
    );
    let html = fs::read_to_string(here.path().join("index.html")).unwrap();
    assert!(html.contains("Not measured: ") && html.contains("part-syscalls"));
    let summary = fs::read_to_string(here.path().join("summary.md")).unwrap();
    assert!(summary.contains("\nBold: "), "{summary}");
    assert!(!here.path().join("aio.json").exists() && !here.path().join("aio.part").exists());
}

/// Ctrl-C of a terminal goes to the whole process group, and kill(1) to one process.
#[test]
fn ctrl_c_ends_with_a_page_of_what_was_measured() {
    for is_terminal in [true, false] {
        ctrl_c_ends_with_a_page(is_terminal);
    }
}

fn ctrl_c_ends_with_a_page(is_terminal: bool) {
    use std::os::unix::process::CommandExt;

    let here = directory();
    let mut command = nowait_bench([
        "report",
        "--minutes",
        "6",
        "--parts",
        "syscalls,cached",
        "--out",
    ]);
    let child = spawned(command.arg(here.path()).process_group(0));
    let cached = here.path().join("cached.part");
    while !cached.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // A turn of the second part has begun, or is about to.
    std::thread::sleep(Duration::from_secs(1));
    let pid = Pid::from_child(&child);
    match is_terminal {
        true => kill_process_group(pid, Signal::INT).unwrap(),
        false => kill_process(pid, Signal::INT).unwrap(),
    }
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let kept: BTreeMap<String, PathBuf> = fs::read_dir(here.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    assert!(
        kept.contains_key("index.html") && kept.contains_key("syscalls.json"),
        "{kept:?}"
    );
    assert!(
        !kept.values().any(|path| path.is_dir()) && !kept.contains_key("cached.part"),
        "{kept:?}"
    );
}
