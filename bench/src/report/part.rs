//! The parts of a report: one run of one area each, with options that fit a time.

/// One part of a report.
pub struct Part {
    /// The name of its file, and of its place on the page.
    pub name: &'static str,
    pub title: &'static str,
    /// The question that it answers, for people.
    pub about: &'static str,
    /// Its share of the time of the report. With less than a second it does the least that makes a
    /// page.
    share: f64,
    /// The arguments of `nowait-bench` for a number of seconds.
    args: fn(f64) -> String,
}

/// All parts, in the order of the page.
pub const PARTS: [Part; 20] = [
    Part {
        name: "mix",
        title: "A database's reads at once",
        about: "Three classes of reads in one program: mostly cached, mostly not cached, and \
                sequential. A pool of threads lets cached reads wait behind those of the disk.",
        share: 0.12,
        args: |seconds| {
            // Seven contenders; half of the time goes into the cache's state.
            let turn = fraction(seconds / 2.0 / 7.0 / 3.0, 0.1, 10.0);
            let size = by_time(
                seconds,
                &[(60.0, "6G"), (10.0, "1536M"), (1.0, "192M"), (0.0, "48M")],
            );
            format!("mix --size {size} --seconds {turn} --rounds 3")
        },
    },
    Part {
        name: "aio",
        title: "POSIX AIO under fio",
        about: "fio's engine posixaio on glibc, and on the same calls of nowait's drop-in library.",
        share: 0.1,
        args: |seconds| {
            let all = "random-cold-1,random-cold-32,random-warm-1,random-warm-32,mixed,mixed-paced,\
                       sequential,seed-cold,seed-warm";
            let rows = by_time(
                seconds,
                &[(30.0, all), (0.0, "random-cold-32,random-warm-32")],
            );
            let turns = rows.split(',').count() as f64 * 2.0 * 3.0;
            let turn = fraction(seconds / turns / 1.3, 0.2, 10.0);
            let size = by_time(seconds, &[(60.0, "2G"), (1.0, "256M"), (0.0, "64M")]);
            format!("aio --rows {rows} --size {size} --seconds {turn} --rounds 3")
        },
    },
    Part {
        name: "randread",
        title: "Random reads of a cold file",
        about: "The program of the proposal: 4 KiB reads of a file that is not in the page cache, 32 in flight. \
                The times are those of time(1).",
        share: 0.08,
        args: |seconds| {
            // Five contenders, of which preadv takes half of the time: 100 us a read.
            let (rounds, rate) = if seconds >= 30.0 {
                (6, 700.0)
            } else {
                (3, 1400.0)
            };
            let ops = (seconds * rate).clamp(1000.0, 1e6) as u64;
            let size = (ops * 4096).next_multiple_of(1 << 20);
            format!("randread --size {size} --ops {ops} --rounds {rounds}")
        },
    },
    Part {
        name: "syscalls",
        title: "The cost of each call",
        about: "One call at a time, on pages that are cached and on pages that are not.",
        share: 0.03,
        args: |seconds| format!("syscalls --rounds {}", count(seconds, 2.0, 3, 15)),
    },
    Part {
        name: "hitrate",
        title: "The cost of a read against the hit rate",
        about: "The break-even is the hit rate from which it pays to try the page cache before a \
                hand-off.",
        share: 0.18,
        args: |seconds| {
            let (rates, blocks) = match seconds {
                100.0.. => ("0,10,20,30,40,50,60,70,80,90,100", "4K,64K"),
                30.0.. => ("0,20,40,60,80,100", "4K,64K"),
                _ => ("0,50,100", "4K"),
            };
            let curves = 2 * rates.split(',').count() * blocks.split(',').count();
            // Five contenders, about 30 us a read with the cache's state.
            let rounds = if seconds >= 100.0 { 6 } else { 3 };
            let turns = (curves * 5 * rounds) as f64;
            let ops = (seconds / turns / 60e-6).clamp(500.0, 8000.0) as u64;
            let size = by_time(seconds, &[(30.0, "512M"), (0.0, "64M")]);
            format!(
                "hitrate --rates {rates} --block {blocks} --ops {ops} --size {size} --rounds {rounds}"
            )
        },
    },
    Part {
        name: "race",
        title: "Ask, then read",
        about: "The share of pages that were reported to be cached and were gone when the read came.",
        share: 0.06,
        args: |seconds| {
            let turn = fraction(seconds / 250.0, 0.02, 0.2);
            let delays = by_time(seconds, &[(1.0, ""), (0.0, "--delays 0,1ms")]);
            format!("race --seconds {turn} --rounds 3 {delays}")
        },
    },
    Part {
        name: "iops",
        title: "Operations per second past the page cache",
        about: "Reads with O_DIRECT from devices in memory: the cost of the interface alone.",
        share: 0.13,
        args: |seconds| {
            let tables = by_time(
                seconds,
                &[(20.0, "latency,peak,per-core"), (0.0, "latency")],
            );
            // Ten cells of about nine contenders; four cells in the first table.
            let turns = if seconds >= 20.0 { 90.0 } else { 36.0 } * 3.0;
            let turn = fraction(seconds / turns / 1.4, 0.05, 2.0);
            let few = "--depths 1,8 --contenders local,libaio,fio-io_uring";
            let few = by_time(seconds, &[(1.0, ""), (0.0, few)]);
            format!("iops --tables {tables} --seconds {turn} --rounds 3 {few}")
        },
    },
    Part {
        name: "ring",
        title: "The ring beside the bare ring",
        about: "nowait's LocalEngine beside the crate io-uring, on the same device in
                memory.",
        share: 0.03,
        args: |seconds| {
            let turn = fraction(seconds / 3.0 / 9.0, 0.05, 1.0);
            format!("ring --seconds {turn} --rounds 9")
        },
    },
    Part {
        name: "dir",
        title: "List a directory and ask about every entry",
        about: "Cold directories on this machine's disk.",
        share: 0.08,
        args: |seconds| {
            let sizes = [
                (90.0, "10k,50k,100k"),
                (30.0, "2k,10k,50k"),
                (0.0, "500,2k"),
            ];
            let (files, rounds) = (by_time(seconds, &sizes), six_if(seconds >= 180.0));
            format!("dir --files {files} --rounds {rounds}")
        },
    },
    Part {
        name: "seeks",
        title: "The same on a disk that seeks",
        about: "A disk in memory that takes 100 us for each request and 1 ms more for each that moves \
                its head. The pictures show where each program's reads went.",
        share: 0.07,
        args: |seconds| {
            let files = by_time(seconds, &[(120.0, "2k,10k"), (40.0, "1k,3k"), (0.0, "300")]);
            format!(
                "dir --files {files} --rounds 3 --slow-disk 100us --seek 1ms --queue 1 --windows v16384d10000 \
                 --contenders getdents+stat,xgetdents,dirreadahead"
            )
        },
    },
    Part {
        name: "ahead",
        title: "Programs that walk trees",
        about: "Unmodified programs alone, under nowait run, and beside nowait warm --metadata. The trees are cold, \
                on a disk in memory that takes 1 ms for each request.",
        share: 0.12,
        args: |seconds| {
            let files = by_time(seconds, &[(180.0, "50k"), (60.0, "10k"), (0.0, "300")]);
            let rounds = six_if(seconds >= 360.0);
            format!(
                "ahead --programs ls,find,du,rsync --files {files} --slow-disk 1ms --rounds {rounds}"
            )
        },
    },
    Part {
        name: "ahead-data",
        title: "Programs that read trees of files",
        about: "The same for programs that also read the files.",
        share: 0.06,
        args: |seconds| {
            let files = by_time(seconds, &[(90.0, "2k"), (0.0, "300")]);
            let rounds = six_if(seconds >= 180.0);
            format!(
                "ahead --programs tar,cp,grep,restic --contenders direct,data --files {files} \
                 --slow-disk 1ms --rounds {rounds}"
            )
        },
    },
    Part {
        name: "tools",
        title: "Tools for the page cache",
        about: "nowait fincore and nowait warm beside vmtouch, util-linux fincore and cat: whole processes \
                on trees of files.",
        share: 0.06,
        args: |seconds| {
            let scales = [(600.0, "1"), (90.0, "0.25"), (15.0, "0.05"), (0.0, "0.002")];
            let (scale, rounds) = (by_time(seconds, &scales), six_if(seconds >= 90.0));
            format!("tools --scale {scale} --rounds {rounds}")
        },
    },
    Part {
        name: "keep-cache",
        title: "The page cache as it was",
        about: "Programs that read or copy a tree, alone, under nowait run --keep-cache and under nocache. \
                The tree is cold, or half of it is cached.",
        share: 0.06,
        args: |seconds| {
            let tree = by_time(
                seconds,
                &[
                    (180.0, "--files 20000 --large 512M"),
                    (60.0, "--files 2000 --large 128M"),
                    (0.0, "--files 50 --large 4M"),
                ],
            );
            let few = by_time(
                seconds,
                &[(20.0, ""), (0.0, "--programs tar,cp --states half")],
            );
            let rounds = six_if(seconds >= 180.0);
            format!("keep-cache {tree} --rounds {rounds} {few}")
        },
    },
    Part {
        name: "cached",
        title: "The cost of a hit",
        about: "Random reads of a file that is in the page cache.",
        share: 0.06,
        args: |seconds| {
            let blocks = by_time(seconds, &[(30.0, "512,4K,64K,1M"), (0.0, "4K")]);
            // Six contenders with one and with two threads.
            let turns = 12.0 * blocks.split(',').count() as f64 * 6.0;
            let turn = fraction(seconds / turns / 1.3, 0.05, 0.5);
            format!("cached --block {blocks} --seconds {turn} --rounds 6")
        },
    },
    Part {
        name: "mapped",
        title: "A hit without a system call",
        about: "Copies and borrowed bytes of a mapped file that is in the page cache.",
        share: 0.05,
        args: |seconds| {
            // Six contenders, two sizes of copies and two of borrowed bytes, one and two threads.
            let turn = fraction(seconds / (6.0 * 8.0 * 6.0) / 1.3, 0.05, 0.5);
            let few = "--rounds 3 --threads 1 --copy 4K --borrow 8 --size 4M";
            let few = by_time(seconds, &[(1.0, "--rounds 6"), (0.0, few)]);
            format!("mapped --seconds {turn} {few}")
        },
    },
    Part {
        name: "runtimes",
        title: "Asynchronous runtimes",
        about: "The same tasks on tokio's files, tokio-uring, compio and nowait.",
        share: 0.06,
        args: |seconds| {
            let (size, cells) = match seconds {
                60.0.. => ("1G", "cached,cold,mixed,write"),
                1.0.. => ("64M", "cached,cold"),
                _ => ("64M", "cached-4K-32,cold-4K-32"),
            };
            let turn = fraction(seconds / 700.0, 0.02, 0.2);
            format!(
                "runtimes --file runtimes.dat --size {size} --cells {cells} --seconds {turn} --rounds 3"
            )
        },
    },
    Part {
        name: "server",
        title: "A file server",
        about: "The same HTTP server with several ways to read a file, ServeDir and nginx. Hot connections \
                request cached files, and cold ones files that come from the disk. Their numbers are in \
                parentheses.",
        share: 0.06,
        args: |seconds| {
            // Eight contenders with and without cold connections; a third of the time goes into the
            // cache's state.
            let turn = fraction(seconds / 16.0 / 3.0 / 1.5, 0.1, 2.0);
            let files = by_time(seconds, &[(20.0, "8000"), (1.0, "1000"), (0.0, "200")]);
            format!("server --cold-files {files} --seconds {turn} --rounds 3")
        },
    },
    Part {
        name: "server-cold",
        title: "A file server beside a slow disk",
        about: "ServeDir with tokio's files and with nowait's, in one thread. The disk in memory takes 1 ms for each request, \
                one at a time, and 256 connections request files from it. The paced turns request as many cached files \
                instead.",
        share: 0.03,
        args: |seconds| {
            let turn = fraction(seconds / 4.0 / 3.0 / 2.0, 0.1, 3.0);
            let files = by_time(seconds, &[(60.0, "11000"), (0.0, "500")]);
            format!(
                "server --contenders serve-dir,serve-dir-nowait --size 4K --cold-files {files} --api 8 \
                 --cold 256 --paced --slow-disk 1ms --queue 1 --threads 1 --seconds {turn} --rounds 3"
            )
        },
    },
    Part {
        name: "object-store",
        title: "An object store",
        about: "NowaitFileSystem beside LocalFileSystem of object_store. The list is that of a disk in memory that \
                takes 1 ms for each request.",
        share: 0.05,
        args: |seconds| {
            // Five works of three contenders; half of the time goes into the cache's state and the
            // disk of the list.
            let turn = fraction(seconds / 15.0 / 3.0 / 2.0, 0.1, 1.0);
            let size = by_time(seconds, &[(30.0, "1G"), (0.0, "64M")]);
            let objects = by_time(seconds, &[(90.0, "100000"), (0.0, "1000")]);
            let rounds = if seconds >= 180.0 { 9 } else { 3 };
            format!(
                "object-store --size {size} --objects {objects} --slow-disk 1ms --seconds {turn} --rounds {rounds}"
            )
        },
    },
];

impl Part {
    /// The seconds that it gets of a report's.
    pub fn seconds(&self, total: f64) -> f64 {
        let all: f64 = PARTS.iter().map(|part| part.share).sum();
        total * self.share / all
    }

    /// The arguments of `nowait-bench`, without those for the output.
    pub fn args(&self, total: f64) -> Vec<String> {
        let line = (self.args)(self.seconds(total));
        line.split_whitespace().map(str::to_owned).collect()
    }
}

/// Seconds of one turn, between two limits.
fn fraction(seconds: f64, least: f64, most: f64) -> String {
    format!("{:.2}", seconds.clamp(least, most))
}

/// The number of rounds that fit if each takes `each` seconds, between two limits.
fn count(seconds: f64, each: f64, least: u32, most: u32) -> u32 {
    ((seconds / each) as u32).clamp(least, most)
}

/// The first of these values, largest first, for which there is time.
fn by_time<'a>(seconds: f64, values: &[(f64, &'a str)]) -> &'a str {
    let fits = values.iter().find(|(needed, _)| seconds >= *needed);
    fits.map_or("", |(_, value)| value)
}

/// Rounds: ratios of six have ranges that cover 95 %.
fn six_if(there_is_time: bool) -> u32 {
    if there_is_time { 6 } else { 3 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_length_has_arguments() {
        let mut names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
        for total in [0.0, 30.0, 600.0, 36000.0] {
            for part in &PARTS {
                assert!(part.args(total).len() > 1, "{}", part.name);
            }
        }
    }
}
