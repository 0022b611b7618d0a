//! The engine's operation for a request.

use std::io;
use std::os::fd::AsFd;

use nowait::op::{Call, Fsync, Op, Read, Write};

use crate::driver::in_flight::InFlight;
use crate::driver::open_file::OpenFile;
use crate::request::Opcode;
use crate::sys::rw;

/// Makes the operation.
///
/// For a stream it is read(2) or write(2) on a worker. A ring would wait for a file that is open
/// with O_NONBLOCK.
pub fn new(request: &InFlight, file: &OpenFile, is_stream: bool) -> Op {
    let (handle, offset) = (file.handle(), request.request.offset);
    let buf = request.request.buf.skip(request.transferred);
    match request.request.opcode {
        opcode @ (Opcode::Read | Opcode::Write) if is_stream => {
            let handle = handle.clone();
            Op::from(Call::new(move || {
                // SAFETY: the memory is the buffer of a request in flight: see `Request`.
                let moved = unsafe {
                    let is_write = opcode == Opcode::Write;
                    rw::transfer(handle.as_fd(), is_write, buf.start(), buf.len())
                };
                moved.map_err(io::Error::from)
            }))
        }
        // As with pread(2), the bytes that were read before an error are the result.
        Opcode::Read => Op::from(Read::new(handle, Box::new(buf), offset).or_part()),
        Opcode::Write => Op::from(Write::new(handle, Box::new(buf), offset)),
        Opcode::Sync => Op::from(Fsync::new(handle)),
        Opcode::DataSync => Op::from(Fsync::data(handle)),
    }
}
