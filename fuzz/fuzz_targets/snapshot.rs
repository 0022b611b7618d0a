//! A snapshot of the page cache that anybody may have written: what is read is what was written, and
//! whatever else it is it makes sense or is refused.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_cli::fuzzing::{Entry, snapshot_of_bytes, snapshot_of_entries};

#[derive(Arbitrary, Debug)]
struct Entry {
    path: Vec<u8>,
    /// Most paths are absolute, and most ranges in order and within the size.
    lost: bool,
    mtime: (i64, u32),
    inode: u64,
    steps: Vec<u16>,
    size: Option<u64>,
}

impl From<Entry> for Entry {
    fn from(entry: Entry) -> Entry {
        let mut path = entry.path;
        if !entry.lost {
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
    Entries(Vec<Entry>),
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
