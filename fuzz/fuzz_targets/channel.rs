//! The channel of `nowait run`, while another thread writes words into its memory. The reader returns in time whatever
//! it finds, and events that were told of meanwhile are whole or none.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_ahead_channel::{Channel, Kind, PATH_MAX, Place, Reader};

#[derive(Arbitrary, Debug)]
enum Write {
    /// A word among those before the slots.
    Start(u8, u64),
    /// A word of a slot: the first one is its mark.
    Slot(u16, u8, u64),
    /// An event.
    Event(u8),
}

const SLOTS: u64 = 4096;
const SLOT: u64 = 320;

fuzz_target!(|writes: Vec<Write>| {
    let (channel, memory) = Channel::create(7).unwrap();
    let memory = File::from(memory);
    let first = memory.metadata().unwrap().len() - SLOTS * SLOT;
    let word = |at: u64, word: u64| memory.write_all_at(&word.to_ne_bytes(), at).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for write in &writes {
                    match *write {
                        Write::Start(at, value) => word(u64::from(at) * 8 % first, value),
                        Write::Slot(slot, at, value) => word(
                            first + u64::from(slot) % SLOTS * SLOT + u64::from(at) * 8 % SLOT,
                            value,
                        ),
                        Write::Event(kind) => {
                            let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
                            channel.tell(kind, 1, Place::NONE, (0, 0), 3);
                        }
                    }
                }
                std::thread::yield_now();
            }
        });
        let mut reader = Reader::new(&channel);
        let end = Instant::now() + Duration::from_millis(2);
        while Instant::now() < end {
            let event = reader.next_until(Instant::now() + Duration::from_micros(100));
            assert!(event.is_none_or(|event| event.path.len() <= PATH_MAX));
        }
        over.store(true, Ordering::Relaxed);
    });
});
