//! The parsers of /proc. Lines that are made of known parts are parsed to these parts. For any bytes, the
//! result is compared with that of a simpler parser.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_cli::fuzzing::{mapping, mounts, values};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Values(&'a str, &'a [u8]),
    Mounts {
        two: bool,
        tags: u8,
        number: u32,
        root: &'a [u8],
        point: &'a [u8],
        group: &'a [u8],
        within: bool,
    },
    Mapping {
        range: (u64, u64),
        device: (u32, u32),
        inode: u64,
        locked: bool,
        path: &'a [u8],
    },
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Values(word, text) => values(text, word),
    Input::Mounts {
        two,
        tags,
        number,
        root,
        point,
        group,
        within,
    } => {
        let below = [root, b"/", group].concat();
        mounts(
            two,
            root,
            point,
            if within { &below } else { group },
            tags,
            number,
        );
    }
    Input::Mapping {
        range,
        device,
        inode,
        locked,
        path,
    } => mapping(range, device, inode, path, locked),
});
