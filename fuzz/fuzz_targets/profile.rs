//! A profile of `nowait run --learn`. Valid entries are read as they were written. Any bytes are read as a valid profile or
//! are refused.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_cli::fuzzing::{Entry, profile_of_bytes, profile_of_entries};

#[derive(Arbitrary, Debug)]
struct RawEntry {
    path: Vec<u8>,
    mtime: (i64, u32),
    inode: u64,
    steps: Vec<u16>,
    size: Option<u64>,
    flags: u8,
    unused: u32,
}

impl From<RawEntry> for (Entry, u8, u32) {
    fn from(raw: RawEntry) -> (Entry, u8, u32) {
        let mut end = 0;
        let mut bounds = Vec::new();
        for step in &raw.steps {
            end += u64::from(*step);
            bounds.push(end);
        }
        let entry = Entry {
            path: raw.path,
            size: raw.size.unwrap_or(end),
            mtime: raw.mtime,
            inode: raw.inode,
            ranges: bounds.chunks_exact(2).map(|two| two[0]..two[1]).collect(),
        };
        (entry, raw.flags, raw.unused)
    }
}

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes(&'a [u8]),
    /// As one line in a whole profile.
    Line(&'a [u8]),
    Entries(Vec<Vec<u8>>, Vec<RawEntry>),
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Bytes(text) => profile_of_bytes(text),
    Input::Line(line) => {
        let mut text = b"{\"format\":\"nowait learn\",\"version\":2}\n".to_vec();
        text.extend_from_slice(line);
        text.extend_from_slice(b"\n{\"end\":{\"lines\":1}}\n");
        profile_of_bytes(&text);
    }
    Input::Entries(command, entries) => {
        profile_of_entries(command, entries.into_iter().map(Into::into).collect());
    }
});
