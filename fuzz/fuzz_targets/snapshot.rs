//! A snapshot of the page cache. Valid entries are read as they were written. Any bytes are read as valid
//! entries or are refused.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_cli::fuzzing::{Entry, snapshot_of_bytes, snapshot_of_entries};

#[derive(Arbitrary, Debug)]
struct RawEntry {
    path: Vec<u8>,
    /// The path is relative.
    relative: bool,
    mtime: (i64, u32),
    inode: u64,
    steps: Vec<u16>,
    size: Option<u64>,
}

impl From<RawEntry> for Entry {
    fn from(entry: RawEntry) -> Entry {
        let mut path = entry.path;
        if !entry.relative {
            path.insert(0, b'/');
        }
        let mut end = 0;
        let mut bounds = Vec::new();
        for step in &entry.steps {
            end += u64::from(*step);
            bounds.push(end);
        }
        Entry {
            path,
            size: entry.size.unwrap_or(end),
            mtime: entry.mtime,
            inode: entry.inode,
            ranges: bounds.chunks_exact(2).map(|two| two[0]..two[1]).collect(),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes(&'a [u8]),
    /// As one file in a whole snapshot.
    Line(&'a [u8]),
    Entries(Vec<RawEntry>),
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Bytes(text) => snapshot_of_bytes(text),
    Input::Line(line) => {
        let mut text = b"{\"format\":\"nowait cache\",\"version\":1}\n".to_vec();
        text.extend_from_slice(line);
        text.extend_from_slice(b"\n{\"end\":{\"files\":1}}\n");
        snapshot_of_bytes(&text);
    }
    Input::Entries(entries) => snapshot_of_entries(entries.into_iter().map(Entry::from).collect()),
});
