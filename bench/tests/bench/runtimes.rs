//! `nowait-bench runtimes`.

use crate::common::{
    assert_says, assert_shape, bench, cells_of, charts, directory, report, rows, run,
};

const SHORT: &str = "runtimes --file data --size 8M --rounds 1 --seconds 0.005 --ring-build none";

/// The peers that read in this build. Those in parentheses do not write.
const PEERS: &str = "pread spawn-blocking tokio-fs tokio-uring compio nowait (nowait-strict) \
                     nowait-threads nowait-stream";

#[test]
fn every_peer_does_every_kind_of_work() {
    let here = directory();
    let cells =
        "cached-4K,cold-4K-32,mixed-0,mixed-50,mixed-100,write-positional-4K,write-sequential-64K";
    let report = report(here.path(), &format!("{SHORT} --cells {cells}"));
    let mut cells = String::new();
    let all = [
        ("cached", "4K-1 4K-32 4K-1024"),
        ("cold", "4K-32"),
        ("mixed", "0 50 100"),
        ("write", "positional-4K-1 positional-4K-32 sequential-64K-1"),
    ];
    for (work, names) in all {
        let takes_part = |peer: &&str| work != "write" || !peer.starts_with('(');
        let peers: Vec<&str> = PEERS.split(' ').filter(takes_part).collect();
        let peers = peers.join(" ").replace(['(', ')'], "");
        cells.extend(
            names
                .split(' ')
                .map(|name| format!("{work}-{name}: {peers}\n")),
        );
    }
    assert_shape(&report, "runtimes", 1, &cells);
    for peer in cells_of(&report).iter().flat_map(rows) {
        assert_eq!(
            peer["median"]["tick_us"].is_object(),
            peer["name"] != "pread"
        );
    }
    let notes = report["notes"].as_array().unwrap();
    // A note for the peer that needs another build.
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .starts_with("`tokio-fs-ring` is left out")
    );
    let names = ["throughput", "p50", "p99", "tick"].map(|name| format!("mixed-{name}"));
    assert_eq!(charts(&report), names);
    assert!(!here.path().join("data.write").exists());
}

#[test]
fn a_table_has_the_chosen_cells_and_peers() {
    let here = directory();
    let said = run(&mut bench(
        here.path(),
        &format!("{SHORT} --cells cached-4K-1 --peers pread,nowait"),
    ))
    .done();
    assert_says(&said, &["cached-4K-1", "pread"]);
    assert!(!said.out.contains("compio"), "{said:?}");
}
