//! The output of callgrind: instructions, and calls of functions that are counted apart.

use std::fs;
use std::path::Path;

use crate::data::Failure;

/// The functions of the C library that allocate.
const ALLOCATORS: [&str; 7] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "reallocarray",
];

/// The counts of a whole run, or of one thread of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Without those of `clock_gettime`, which is not that of the C library.
    pub instructions: u64,
    pub allocations: u64,
    pub clock_reads: u64,
}

impl Profile {
    /// The sum.
    pub fn and(self, other: Profile) -> Profile {
        Profile {
            instructions: self.instructions + other.instructions,
            allocations: self.allocations + other.allocations,
            clock_reads: self.clock_reads + other.clock_reads,
        }
    }

    /// Parses one file. See "Callgrind Format Specification" of valgrind's manual.
    pub fn parse(text: &str) -> Result<Profile, Failure> {
        let mut profile = Profile::default();
        let mut names = Names::default();
        let (mut is_clock, mut callee) = (false, Kind::Other);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("fn=") {
                is_clock = names.kind(name) == Kind::Clock;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = names.kind(name);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls: u64 = calls.split(' ').next().unwrap_or_default().parse()?;
                match callee {
                    Kind::Allocator => profile.allocations += calls,
                    Kind::Clock => profile.clock_reads += calls,
                    Kind::Other => {}
                }
                // The next line has the instructions of the callee.
                lines.next();
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                let count = line.split(' ').nth(1).unwrap_or("0").parse::<u64>()?;
                profile.instructions += if is_clock { 0 } else { count };
            }
        }
        Ok(profile)
    }

    /// Parses the files of a run with `--separate-threads=yes`: the first thread, and the others together.
    pub fn of_threads(out: &Path) -> Result<[Profile; 2], Failure> {
        let name = |thread| format!("{}-{thread:02}", out.display());
        let first = Profile::parse(&fs::read_to_string(name(1))?)?;
        let mut others = Profile::default();
        for thread in 2.. {
            let Ok(text) = fs::read_to_string(name(thread)) else {
                break;
            };
            others = others.and(Profile::parse(&text)?);
        }
        Ok([first, others])
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Allocator,
    Clock,
    Other,
}

/// A name is written once, as "(ID) NAME". Later it is "(ID)".
#[derive(Default)]
struct Names(std::collections::HashMap<String, Kind>);

impl Names {
    fn kind(&mut self, text: &str) -> Kind {
        let (id, name) = text.split_once(' ').unwrap_or((text, ""));
        if !name.is_empty() {
            self.0.insert(id.to_owned(), Kind::of(name));
        }
        self.0.get(id).copied().unwrap_or(Kind::Other)
    }
}

impl Kind {
    /// The name may have the version of the symbol ("@@GLIBC_2.2.5"), and the depth of a recursion ("'2").
    fn of(name: &str) -> Kind {
        match name.split(['@', '\'']).next().unwrap_or(name) {
            "clock_gettime" => Kind::Clock,
            name if ALLOCATORS.contains(&name) => Kind::Allocator,
            _ => Kind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: &str = "\
version: 1
events: Ir
summary: 70

fl=(1) main.rs
fn=(1) main
10 5
+2 7
cfn=(2) malloc
calls=3 0
12 30
cfn=(3) clock_gettime
calls=2 0
* 20
-1 4

fn=(2)
1 30
cfn=(2)
calls=1 0
1 0

fn=(3)
5 20
";

    #[test]
    fn own_instructions_are_added_without_those_of_the_clock() {
        let profile = Profile::parse(OUT).unwrap();
        assert_eq!(profile.instructions, 5 + 7 + 4 + 30);
    }

    #[test]
    fn calls_are_counted_by_name_and_by_number() {
        let profile = Profile::parse(OUT).unwrap();
        assert_eq!((profile.allocations, profile.clock_reads), (4, 2));
    }

    #[test]
    fn a_version_or_a_recursion_does_not_hide_a_function() {
        assert_eq!(Kind::of("posix_memalign@@GLIBC_2.2.5"), Kind::Allocator);
        assert_eq!(Kind::of("malloc'2"), Kind::Allocator);
        assert_eq!(Kind::of("malloc_consolidate"), Kind::Other);
    }
}
