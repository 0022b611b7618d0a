//! Linux 5.9 and 5.10 return zero for bytes that are not cached. A seccomp filter does the same here.

use std::fs;

use nowait::read::{Cached, cached, cached_by_nowait};
use nowait::{Engine, File, RwFlags};
use slowdisk::LoopDevice;

use crate::common::children::alone;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::sandbox::{NUMBER, filter, load, refuse, unless};

const LEN: u64 = 1 << 20;

/// The offset of the flags of preadv2(2) in `struct seccomp_data`.
const FLAGS: u32 = 16 + 5 * 8;

#[test]
fn zero_bytes_are_not_the_end_of_a_file_or_a_block_device() {
    alone(|| {
        if let Err(missing) = slowdisk::available() {
            return slowdisk::skip_or_fail(missing);
        }
        let directory = scratch();
        let image = patterned(directory.path(), "image", LEN as usize);
        let device = LoopDevice::attach(&image).unwrap();
        let nowait = unless(RwFlags::NOWAIT.bits(), 1);
        let preadv2 = unless(libc::SYS_preadv2 as u32, 3);
        filter(vec![load(NUMBER), preadv2, load(FLAGS), nowait, refuse(0)]);
        for path in [&*image, device.path()] {
            let file = fs::File::open(path).unwrap();
            let mut buf = [0xa5; 64];
            for offset in [0, LEN - 64] {
                let said = cached_by_nowait(&file, &mut buf[..], offset);
                assert!(matches!(said, Ok(Cached::Nothing)), "{path:?}: {said:?}");
            }
            let said = cached(&file, &mut buf[..], LEN);
            assert!(matches!(said, Ok(Cached::All(0))), "{path:?}: {said:?}");

            let file = File::from_fd(file, &Engine::new().unwrap()).unwrap();
            assert_eq!(file.len().unwrap(), LEN);
            let done = pollster::block_on(file.read_at(Vec::with_capacity(64), 64));
            assert_eq!((done.result.unwrap(), done.buf), (64, pattern(64, 64)));
        }
    });
}
