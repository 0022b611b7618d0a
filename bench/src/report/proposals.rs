//! The tables that were published with the five proposals on the kernel lists, beside which a report
//! shows what was measured.

use crate::harness::table::{Entry, Table};

/// One proposal, with the parts of a report that measure the same.
pub struct Proposal {
    /// Its place on the page.
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub parts: &'static [&'static str],
    published: &'static [Published],
}

/// A published table. The first row has the heads of the columns.
struct Published {
    title: &'static str,
    source: &'static str,
    rows: &'static [&'static [&'static str]],
}

impl Proposal {
    /// The published tables.
    pub fn tables(&self) -> Vec<Table> {
        let table = |published: &Published| {
            let mut rows = published.rows.iter();
            let columns = rows.next().map_or(Vec::new(), |head| strings(head));
            let entries = |row: &&[&str]| row.iter().map(|&text| Entry::from(text)).collect();
            Table {
                title: published.title.into(),
                source: Some(published.source.into()),
                columns,
                rows: rows.map(entries).collect(),
            }
        };
        self.published.iter().map(table).collect()
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

const PREADV2: &str = "Published by Milosz Tanski, \"vfs: Non-blocking buffered fs read\", version 7, \
                       linux-api, 2015; fio, 16 KiB reads on ext4 on RAID 0 of disks, 10 minutes";
const BUFFERED: &str = "Published by Jens Axboe, \"Add support for async buffered reads\", io-uring \
                        list, 2020; random 4 KiB reads of 4 GiB on ext4, depth 32";
const FINCORE: &str = "Published by Andrew Morton, \"vfs: Non-blocking buffered fs read\", version 7, \
                       April 2015; \"on a slow machine\"";
const URING: &str = "Published by Jens Axboe, \"io_uring IO interface\", version 5, linux-fsdevel, \
                     January 2019";
const XGETDENTS: &str = "Published by Abhijith Das, \"readdirplus implementations: xgetdents vs \
                         dirreadahead syscalls\", linux-fsdevel, July 2014; GFS2 on one node";

/// All proposals, in the order of the page, and at the end the libraries of today.
pub const PROPOSALS: [Proposal; 6] = [
    Proposal {
        name: "preadv2",
        title: "preadv2 with RWF_NONBLOCK",
        about: "A read that is served from the page cache or fails at once lets a program with a pool \
                of threads serve cached reads in the caller.",
        parts: &["mix", "aio"],
        published: &[
            Published {
                title: "fio's posixaio: bandwidth, KB/s",
                source: PREADV2,
                rows: &[
                    &[
                        "class",
                        "before: min",
                        "max",
                        "avg",
                        "stdev",
                        "after: min",
                        "max",
                        "avg",
                        "stdev",
                    ],
                    &[
                        "f1 73 % random, cached",
                        "11",
                        "9088",
                        "969.54",
                        "827.99",
                        "3",
                        "14897",
                        "2276.69",
                        "2930.39",
                    ],
                    &[
                        "f2 18 % random, not cached",
                        "2",
                        "1882",
                        "273.28",
                        "220.26",
                        "2",
                        "2362",
                        "249.83",
                        "222.00",
                    ],
                    &[
                        "f3 9 % sequential",
                        "0",
                        "265568",
                        "174575.10",
                        "34526.89",
                        "1",
                        "245448",
                        "177366.50",
                        "35995.60",
                    ],
                ],
            },
            Published {
                title: "the same: latency, % of the reads in each bucket",
                source: PREADV2,
                rows: &[
                    &[
                        "bucket",
                        "f1 before",
                        "f1 after",
                        "f2 before",
                        "f2 after",
                        "f3 before",
                        "f3 after",
                    ],
                    &["2 us", "", "70.63", "", "", "0.01", "64.04"],
                    &["4 us", "", "0.01", "", "", "0.01", "0.01"],
                    &["10 us", "", "", "", "", "0.02", "0.01"],
                    &["20 us", "", "", "", "", "0.27", "0.06"],
                    &["50 us", "", "", "", "", "10.82", "0.43"],
                    &["100 us", "", "", "", "", "50.34", "0.20"],
                    &["250 us", "", "", "", "", "5.05", "1.27"],
                    &["500 us", "", "", "", "", "7.12", "2.93"],
                    &["750 us", "", "", "", "", "6.60", "3.93"],
                    &["1000 us", "", "", "", "", "4.55", "7.35"],
                    &["2 ms", "", "", "", "", "8.73", "14.27"],
                    &["4 ms", "", "", "", "", "3.49", "2.88"],
                    &["10 ms", "", "", "", "", "1.83", "1.54"],
                    &["20 ms", "", "", "", "", "0.89", "0.81"],
                    &["50 ms", "0.01", "", "", "", "0.22", "0.22"],
                    &["100 ms", "1.06", "", "", "", "0.05", "0.05"],
                    &["250 ms", "5.88", "0.20", "5.65", "6.35", "0.02", "0.02"],
                    &["500 ms", "4.08", "2.26", "3.31", "1.78", "0.01", ""],
                    &["750 ms", "12.48", "1.18", "15.64", "9.29", "", ""],
                    &["1000 ms", "17.27", "", "24.59", "20.49", "", ""],
                    &["2000 ms", "49.86", "0.22", "46.56", "52.18", "", ""],
                    &[">= 2000 ms", "9.42", "25.53", "4.33", "9.99", "", ""],
                ],
            },
        ],
    },
    Proposal {
        name: "buffered",
        title: "Asynchronous buffered reads",
        about: "A buffered read that misses the page cache goes on when its page is there, without a \
                thread that waits for it.",
        parts: &["randread"],
        published: &[Published {
            title: "time(1) of one program",
            source: BUFFERED,
            rows: &[
                &["", "real s", "user s", "sys s", "CPU %"],
                &["preadv", "73.821", "0.558", "11.125", "~13"],
                &["io_uring, threads", "12.054", "0.111", "5.659", "~82"],
                &["io_uring, this patchset", "9.283", "0.147", "4.619", "~52"],
            ],
        }],
    },
    Proposal {
        name: "fincore",
        title: "fincore and preadv2",
        about: "To ask for residency and then to read costs less than to try, if most reads miss. The \
                proposal gave 30 % as the hit rate at which both cost the same.",
        parts: &["syscalls", "hitrate", "race"],
        published: &[
            Published {
                title: "the calls",
                source: FINCORE,
                rows: &[
                    &["call", "ns"],
                    &["null system call", "528"],
                    &["fincore, miss", "674"],
                    &["fincore, hit", "729"],
                    &["pread of one byte", "1026"],
                    &["preadv of one byte", "1134"],
                ],
            },
            Published {
                title: "the two ways",
                source: FINCORE,
                rows: &[
                    &["way", "hit, ns", "miss, ns"],
                    &["fincore, then pread", "1755", "674"],
                    &["preadv2", "1134", "1134, \"a little faster\""],
                ],
            },
        ],
    },
    Proposal {
        name: "uring",
        title: "The io_uring interface",
        about: "Submission and completion in memory that the program shares with the kernel, beside \
                libaio and SPDK.",
        parts: &["iops", "ring"],
        published: &[
            Published {
                title: "latency: 3D XPoint, 4 KiB random reads",
                source: URING,
                rows: &[
                    &["interface", "QD", "polled", "latency us", "IOPS"],
                    &["io_uring", "1", "0", "9.5", "77K"],
                    &["io_uring", "2", "0", "8.2", "183K"],
                    &["io_uring", "4", "0", "8.4", "383K"],
                    &["io_uring", "8", "0", "13.3", "449K"],
                    &["libaio", "1", "0", "9.7", "74K"],
                    &["libaio", "2", "0", "8.5", "181K"],
                    &["libaio", "4", "0", "8.5", "373K"],
                    &["libaio", "8", "0", "15.4", "402K"],
                    &["io_uring", "1", "1", "6.1", "139K"],
                    &["io_uring", "2", "1", "6.1", "272K"],
                    &["io_uring", "4", "1", "6.3", "519K"],
                    &["io_uring", "8", "1", "11.5", "592K"],
                    &["spdk", "1", "1", "6.1", "151K"],
                    &["spdk", "2", "1", "6.2", "293K"],
                    &["spdk", "4", "1", "6.7", "536K"],
                    &["spdk", "8", "1", "12.6", "586K"],
                ],
            },
            Published {
                title: "peak: 512-byte random reads",
                source: URING,
                rows: &[
                    &["interface", "QD", "polled", "latency us", "IOPS"],
                    &["io_uring", "4", "1", "6.8", "513K"],
                    &["io_uring", "8", "1", "8.7", "829K"],
                    &["io_uring", "16", "1", "13.1", "1019K"],
                    &["io_uring", "32", "1", "20.6", "1161K"],
                    &["io_uring", "64", "1", "32.4", "1244K"],
                    &["spdk", "4", "1", "6.8", "549K"],
                    &["spdk", "8", "1", "8.6", "865K"],
                    &["spdk", "16", "1", "14.0", "1105K"],
                    &["spdk", "32", "1", "25.0", "1227K"],
                    &["spdk", "64", "1", "47.3", "1251K"],
                ],
            },
            Published {
                title: "one core, several devices: 4 KiB random reads",
                source: URING,
                rows: &[
                    &["interface", "QD", "polled", "IOPS"],
                    &["io_uring", "128", "1", "1620K"],
                    &["libaio", "128", "0", "608K"],
                    &["spdk", "128", "1", "1739K"],
                ],
            },
        ],
    },
    Proposal {
        name: "directories",
        title: "xgetdents and dirreadahead",
        about: "Entries and inodes of a directory, read in the order of the disk.",
        parts: &["dir", "seeks", "ahead", "ahead-data"],
        published: &[Published {
            title: "seconds by number of files, cold",
            source: XGETDENTS,
            rows: &[
                &["files", "10000", "50000", "100000", "500000"],
                &["getdents+stat", "1.4", "220", "514", "2441"],
                &["xgetdents", "1.2", "43", "75", "1710"],
                &["dirreadahead+getdents+stat", "1.1", "5", "68", "391"],
            ],
        }],
    },
    Proposal {
        name: "today",
        title: "The libraries of today",
        about: "Contenders that programs use now, without a published table.",
        parts: &[
            "tools",
            "cached",
            "mapped",
            "runtimes",
            "server",
            "server-cold",
            "object-store",
        ],
        published: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::part::PARTS;

    #[test]
    fn each_part_stands_in_one_section() {
        let mut of_proposals: Vec<_> = PROPOSALS
            .iter()
            .flat_map(|proposal| proposal.parts)
            .copied()
            .collect();
        let mut parts: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        of_proposals.sort_unstable();
        parts.sort_unstable();
        assert_eq!(of_proposals, parts);
    }

    #[test]
    fn published_rows_have_all_columns() {
        for table in PROPOSALS.iter().flat_map(Proposal::tables) {
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.title);
            }
        }
    }
}
