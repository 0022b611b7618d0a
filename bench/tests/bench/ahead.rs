//! `nowait-bench ahead`: its cells, and the removal of what it makes. The preload library, which is built with the
//! program's workspace, is not needed.

use crate::common::{
    assert_nothing_is_left, assert_says, assert_shape, bench, cells_of, directory, report,
    rounds_of, row, rows, run,
};

#[test]
fn trees_on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    for (fs, rounds, programs) in [
        ("ext4", 3, "ls,find,du,tar,cp,grep"),
        ("xfs", 1, "du,tar"),
        ("btrfs", 1, "du,tar"),
    ] {
        slowdisk::require!(fs.parse::<slowdisk::Filesystem>().unwrap().available());
        let here = directory();
        let args = format!(
            "ahead --slow-disk 100us --queue 8 --fs {fs} --files 200 --rounds {rounds} \
             --programs {programs} --contenders direct,warm"
        );
        let report = report(here.path(), &args);
        assert_nothing_is_left(here.path());
        let cells = |program| format!("{program}-one: direct warm\n{program}-many: direct warm\n");
        assert_shape(
            &report,
            "ahead",
            rounds,
            &programs.split(',').map(cells).collect::<String>(),
        );
        assert_eq!(report["settings"]["slow_disk"]["filesystem"], fs);
        let cells = cells_of(&report);
        for cell in cells {
            assert_eq!(cell["parameters"]["files"], 200);
            for turn in rows(cell).iter().flat_map(rounds_of) {
                assert!(turn["reads"].as_u64().unwrap() > 0, "{fs}: {cell}");
            }
            let ratio = &cell["ratios"]["warm/direct"]["files_per_s"]["median"];
            assert_eq!(ratio.is_number(), rounds == 3);
        }
        let reads = |program: &str| {
            let name = format!("{program}-many");
            let cell = cells
                .iter()
                .find(|cell| cell["name"] == name.as_str())
                .unwrap();
            row(cell, "direct")["median"]["reads"].as_f64().unwrap()
        };
        for program in ["tar", "cp", "grep"]
            .iter()
            .filter(|program| programs.contains(*program))
        {
            assert!(reads(program) > reads("du"), "{program}");
        }
    }
}

#[test]
fn trees_of_this_disk_have_tables_and_are_removed() {
    let here = directory();
    let args =
        "ahead --warm --files 60 --trees many --rounds 3 --programs du --contenders direct,warm";
    let said = run(&mut bench(here.path(), args)).done();
    assert_says(
        &said,
        &["du: 60 files in one directory", "x direct", "warm"],
    );
    assert_nothing_is_left(here.path());
}
