//! The parts of a report: one run of one area each, with options that fit a time.

use nowait_cli::size::Size;

/// One part of a report.
pub struct Part {
    /// The name of its file, and of its place on the page.
    pub name: &'static str,
    pub title: &'static str,
    /// The question that it answers, for people.
    pub about: &'static str,
    /// Its share of the time of the report.
    share: f64,
    /// The arguments of `nowait-bench` for a number of seconds.
    args: fn(f64) -> Vec<String>,
}

/// All parts, in the order of the page.
pub const PARTS: [Part; 19] = [
    Part {
        name: "mix",
        title: "A database's reads at once",
        about: "Three classes of reads in one program: mostly cached, mostly not cached, and \
                sequential. A pool of threads lets cached reads wait behind those of the disk.",
        share: 0.12,
        args: mix,
    },
    Part {
        name: "aio",
        title: "POSIX AIO under fio",
        about: "fio's engine posixaio on glibc, and on the same calls of nowait's drop-in library.",
        share: 0.1,
        args: aio,
    },
    Part {
        name: "randread",
        title: "Random reads of a cold file",
        about: "The program of the proposal: 4 KiB reads of a file that is not in the page cache, 32 in flight. \
                The times are those of time(1).",
        share: 0.08,
        args: randread,
    },
    Part {
        name: "syscalls",
        title: "The cost of each call",
        about: "One call at a time, on pages that are cached and on pages that are not.",
        share: 0.03,
        args: |seconds| words(&["syscalls", "--rounds", &count(seconds, 2.0, 3, 15)]),
    },
    Part {
        name: "hitrate",
        title: "The cost of a read against the hit rate",
        about: "The break-even is the hit rate from which it pays to try the page cache before a \
                hand-off.",
        share: 0.18,
        args: hitrate,
    },
    Part {
        name: "race",
        title: "Ask, then read",
        about: "The share of pages that were reported to be cached and were gone when the read came.",
        share: 0.06,
        args: |seconds| {
            words(&[
                "race",
                "--seconds",
                &fraction(seconds / 250.0, 0.02, 0.2),
                "--rounds",
                "3",
            ])
        },
    },
    Part {
        name: "iops",
        title: "Operations per second past the page cache",
        about: "Reads with O_DIRECT from devices in memory: the cost of the interface alone.",
        share: 0.13,
        args: iops,
    },
    Part {
        name: "ring",
        title: "The ring beside the bare ring",
        about: "nowait's LocalEngine beside the crate io-uring and liburing, on the same device in
                memory.",
        share: 0.03,
        args: ring,
    },
    Part {
        name: "dir",
        title: "List a directory and ask about every entry",
        about: "Cold directories on this machine's disk.",
        share: 0.08,
        args: dir,
    },
    Part {
        name: "seeks",
        title: "The same on a disk that seeks",
        about: "A disk in memory that takes 100 us for each request and 1 ms more for each that moves \
                its head. The pictures show where each program's reads went.",
        share: 0.07,
        args: seeks,
    },
    Part {
        name: "ahead",
        title: "Programs that walk trees",
        about: "Unmodified programs alone, under nowait run, and beside nowait warm --metadata. The trees are cold, \
                on a disk in memory that takes 1 ms for each request.",
        share: 0.12,
        args: ahead,
    },
    Part {
        name: "ahead-data",
        title: "Programs that read trees of files",
        about: "The same for programs that also read the files.",
        share: 0.06,
        args: ahead_data,
    },
    Part {
        name: "tools",
        title: "Tools for the page cache",
        about: "nowait fincore and nowait warm beside vmtouch, util-linux fincore and cat: whole processes \
                on trees of files.",
        share: 0.06,
        args: tools,
    },
    Part {
        name: "cached",
        title: "The cost of a hit",
        about: "Random reads of a file that is in the page cache.",
        share: 0.06,
        args: cached,
    },
    Part {
        name: "mapped",
        title: "A hit without a system call",
        about: "Copies and borrowed bytes of a mapped file that is in the page cache.",
        share: 0.05,
        args: mapped,
    },
    Part {
        name: "runtimes",
        title: "Asynchronous runtimes",
        about: "The same tasks on tokio's files, tokio-uring, compio and nowait.",
        share: 0.06,
        args: runtimes,
    },
    Part {
        name: "server",
        title: "A file server",
        about: "The same HTTP server with several ways to read a file, ServeDir and nginx. Hot connections \
                request cached files, and cold ones files that come from the disk. Their numbers are in \
                parentheses.",
        share: 0.06,
        args: server,
    },
    Part {
        name: "server-cold",
        title: "A file server beside a slow disk",
        about: "ServeDir with tokio's files and with nowait's, in one thread. The disk in memory takes 1 ms for each request, \
                one at a time, and 256 connections request files from it. The paced turns request as many cached files \
                instead.",
        share: 0.03,
        args: server_cold,
    },
    Part {
        name: "object-store",
        title: "An object store",
        about: "NowaitFileSystem beside LocalFileSystem of object_store. The list is that of a disk in memory that \
                takes 1 ms for each request.",
        share: 0.05,
        args: object_store,
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
        (self.args)(self.seconds(total))
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Seconds of one turn, between two limits.
fn fraction(seconds: f64, least: f64, most: f64) -> String {
    format!("{:.2}", seconds.clamp(least, most))
}

/// The number of rounds that fit if each takes `each` seconds, between two limits.
fn count(seconds: f64, each: f64, least: u32, most: u32) -> String {
    ((seconds / each) as u32).clamp(least, most).to_string()
}

/// The larger of two values if there is time for it.
fn if_time<'a>(seconds: f64, needed: f64, large: &'a str, small: &'a str) -> &'a str {
    if seconds >= needed { large } else { small }
}

fn mix(seconds: f64) -> Vec<String> {
    // Seven contenders; half of the time goes into the cache's state.
    let turn = fraction(seconds / 2.0 / 7.0 / 3.0, 0.1, 10.0);
    let size = if_time(seconds, 60.0, "6G", if_time(seconds, 10.0, "1536M", "192M"));
    words(&["mix", "--size", size, "--seconds", &turn, "--rounds", "3"])
}

fn aio(seconds: f64) -> Vec<String> {
    let rows = if_time(
        seconds,
        30.0,
        "random-cold-1,random-cold-32,random-warm-1,random-warm-32,mixed,mixed-paced,sequential,\
         seed-cold,seed-warm",
        "random-cold-32,random-warm-32",
    );
    let count = rows.split(',').count() as f64;
    let turn = fraction(seconds / count / 2.0 / 3.0 / 1.3, 0.2, 10.0);
    let size = if_time(seconds, 60.0, "2G", "256M");
    words(&[
        "aio",
        "--rows",
        rows,
        "--size",
        size,
        "--seconds",
        &turn,
        "--rounds",
        "3",
    ])
}

fn randread(seconds: f64) -> Vec<String> {
    // Five contenders, of which preadv takes half of the time: 100 us a read.
    let rounds = if_time(seconds, 30.0, "6", "3");
    let ops = (seconds * if rounds == "6" { 700.0 } else { 1400.0 }).clamp(1000.0, 1e6) as u64;
    let size = Size(ops * 4096).0.next_multiple_of(1 << 20);
    let (ops, size) = (ops.to_string(), size.to_string());
    words(&[
        "randread", "--size", &size, "--ops", &ops, "--rounds", rounds,
    ])
}

fn hitrate(seconds: f64) -> Vec<String> {
    let (rates, blocks) = match seconds {
        s if s >= 100.0 => ("0,10,20,30,40,50,60,70,80,90,100", "4K,64K"),
        s if s >= 30.0 => ("0,20,40,60,80,100", "4K,64K"),
        _ => ("0,50,100", "4K"),
    };
    let curves = 2 * rates.split(',').count() * blocks.split(',').count();
    // Five contenders, about 30 us a read with the cache's state.
    let rounds = if_time(seconds, 100.0, "6", "3");
    let turns = (curves * 5) as f64 * rounds.parse::<f64>().unwrap_or(3.0);
    let ops = (seconds / turns / 60e-6).clamp(500.0, 8000.0) as u64;
    let (ops, size) = (ops.to_string(), if_time(seconds, 30.0, "512M", "64M"));
    words(&[
        "hitrate", "--rates", rates, "--block", blocks, "--ops", &ops, "--size", size, "--rounds",
        rounds,
    ])
}

fn iops(seconds: f64) -> Vec<String> {
    let tables = if_time(seconds, 20.0, "latency,peak,per-core", "latency");
    // Ten cells of about nine contenders; four cells in the first table.
    let turns = if seconds >= 20.0 { 90.0 } else { 36.0 } * 3.0;
    let turn = fraction(seconds / turns / 1.4, 0.05, 2.0);
    words(&[
        "iops",
        "--tables",
        tables,
        "--seconds",
        &turn,
        "--rounds",
        "3",
    ])
}

fn ring(seconds: f64) -> Vec<String> {
    let turn = fraction(seconds / 3.0 / 9.0, 0.05, 1.0);
    words(&["ring", "--seconds", &turn, "--rounds", "9"])
}

fn dir(seconds: f64) -> Vec<String> {
    let files = match seconds {
        s if s >= 90.0 => "10k,50k,100k",
        s if s >= 30.0 => "2k,10k,50k",
        _ => "500,2k",
    };
    words(&[
        "dir",
        "--files",
        files,
        "--rounds",
        if_time(seconds, 180.0, "6", "3"),
    ])
}

fn seeks(seconds: f64) -> Vec<String> {
    let files = match seconds {
        s if s >= 120.0 => "2k,10k",
        s if s >= 40.0 => "1k,3k",
        _ => "300",
    };
    words(&[
        "dir",
        "--files",
        files,
        "--rounds",
        "3",
        "--slow-disk",
        "100us",
        "--seek",
        "1ms",
        "--queue",
        "1",
        "--windows",
        "v16384d10000",
        "--contenders",
        "getdents+stat,xgetdents,dirreadahead",
    ])
}

fn ahead(seconds: f64) -> Vec<String> {
    let files = match seconds {
        s if s >= 180.0 => "50k",
        s if s >= 60.0 => "10k",
        _ => "300",
    };
    words(&[
        "ahead",
        "--programs",
        "ls,find,du,rsync",
        "--files",
        files,
        "--slow-disk",
        "1ms",
        "--rounds",
        if_time(seconds, 360.0, "6", "3"),
    ])
}

fn ahead_data(seconds: f64) -> Vec<String> {
    words(&[
        "ahead",
        "--programs",
        "tar,cp,grep,restic",
        "--contenders",
        "direct,data",
        "--files",
        if_time(seconds, 90.0, "2k", "300"),
        "--slow-disk",
        "1ms",
        "--rounds",
        if_time(seconds, 180.0, "6", "3"),
    ])
}

fn tools(seconds: f64) -> Vec<String> {
    let scale = match seconds {
        s if s >= 600.0 => "1",
        s if s >= 90.0 => "0.25",
        s if s >= 15.0 => "0.05",
        _ => "0.002",
    };
    let rounds = if_time(seconds, 90.0, "6", "3");
    words(&["tools", "--scale", scale, "--rounds", rounds])
}

fn cached(seconds: f64) -> Vec<String> {
    let blocks = if_time(seconds, 30.0, "512,4K,64K,1M", "4K");
    // Six contenders with one and with two threads.
    let turns = 12.0 * blocks.split(',').count() as f64 * 6.0;
    let turn = fraction(seconds / turns / 1.3, 0.05, 0.5);
    words(&[
        "cached",
        "--block",
        blocks,
        "--seconds",
        &turn,
        "--rounds",
        "6",
    ])
}

fn mapped(seconds: f64) -> Vec<String> {
    // Six contenders, two sizes of copies and two of borrowed bytes, one and two threads.
    let turn = fraction(seconds / (6.0 * 8.0 * 6.0) / 1.3, 0.05, 0.5);
    words(&["mapped", "--seconds", &turn, "--rounds", "6"])
}

fn runtimes(seconds: f64) -> Vec<String> {
    let cells = if_time(seconds, 60.0, "cached,cold,mixed,write", "cached,cold");
    let turn = fraction(seconds / 700.0, 0.02, 0.2);
    words(&[
        "runtimes",
        "--file",
        "runtimes.dat",
        "--size",
        if_time(seconds, 60.0, "1G", "64M"),
        "--cells",
        cells,
        "--seconds",
        &turn,
        "--rounds",
        "3",
    ])
}

fn server(seconds: f64) -> Vec<String> {
    // Eight contenders with and without cold connections; a third of the time goes into the cache's state.
    let turn = fraction(seconds / 16.0 / 3.0 / 1.5, 0.1, 2.0);
    words(&[
        "server",
        "--cold-files",
        if_time(seconds, 20.0, "8000", "1000"),
        "--seconds",
        &turn,
        "--rounds",
        "3",
    ])
}

fn server_cold(seconds: f64) -> Vec<String> {
    let turn = fraction(seconds / 4.0 / 3.0 / 2.0, 0.1, 3.0);
    words(&[
        "server",
        "--contenders",
        "serve-dir,serve-dir-nowait",
        "--size",
        "4K",
        "--cold-files",
        if_time(seconds, 60.0, "11000", "500"),
        "--api",
        "8",
        "--cold",
        "256",
        "--paced",
        "--slow-disk",
        "1ms",
        "--queue",
        "1",
        "--threads",
        "1",
        "--seconds",
        &turn,
        "--rounds",
        "3",
    ])
}

fn object_store(seconds: f64) -> Vec<String> {
    // Five works of three contenders; half of the time goes into the cache's state and the disk of the list.
    let turn = fraction(seconds / 15.0 / 3.0 / 2.0, 0.1, 1.0);
    words(&[
        "object-store",
        "--size",
        if_time(seconds, 30.0, "1G", "64M"),
        "--objects",
        if_time(seconds, 90.0, "100000", "1000"),
        "--slow-disk",
        "1ms",
        "--seconds",
        &turn,
        "--rounds",
        if_time(seconds, 180.0, "9", "3"),
    ])
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
