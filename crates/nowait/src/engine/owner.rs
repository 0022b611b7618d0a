//! The owner: the thread that drives the ring of a shared engine.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crossbeam_queue::SegQueue;

use super::class::Class;
use super::core::Core;
use super::features::Features;
use super::linger::Linger;
use super::options::Options;
use super::pools::Pools;
use super::request::Request;
use super::ring::Ring;
use super::ring::out::Out;
use super::ring::supported::Supported;
use super::ring::until::Until;
use super::sleep::Sleep;
use crate::engine::completion::Ticket;
use crate::error::ErrorKind;
use crate::handle::registered::{Notified, Table};
use crate::sys::eventfd::notify;
use crate::sys::sync::spawn;

/// The messages to the owner thread.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: SegQueue<Message>,
    sleep: Sleep,
    closing: AtomicBool,
    wake: Arc<OwnedFd>,
    /// The operations that the ring supports.
    pub(super) supported: Supported,
}

#[derive(Debug)]
pub(super) enum Message {
    Submit(Request),
    Cancel(Ticket, ErrorKind),
    /// Registers a table for the files of a set.
    Register(Arc<Table>, mpsc::Sender<std::io::Result<()>>),
    /// Files were added to the set or removed from it.
    Files,
}

impl Inbox {
    pub(super) fn send(&self, message: Message) {
        self.messages.push(message);
        self.rouse();
    }

    fn rouse(&self) {
        if self.sleep.must_be_woken() {
            notify(&self.wake);
        }
    }

    /// Ends the owner, once its ring is empty.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.rouse();
    }
}

impl Notified for Inbox {
    fn files_changed(&self) {
        self.send(Message::Files);
    }
}

/// Starts the owner thread, which makes its own ring.
pub(super) fn start_owner(
    core: &Arc<Core>,
    options: &Options,
    pools: &Arc<Pools>,
) -> std::io::Result<(Arc<Inbox>, Features)> {
    let (told, answer) = mpsc::channel();
    let (core, pools) = (core.clone(), pools.clone());
    // The ring has a slot for each place of each class.
    let slots = options.depth * Class::ALL.len();
    let options = options.ring.clone();
    spawn(c"nowait-owner", move || {
        match Ring::new(&core, slots, &options) {
            Ok((ring, features)) => {
                let inbox = Arc::new(Inbox {
                    messages: SegQueue::new(),
                    sleep: Sleep::new(),
                    closing: AtomicBool::new(false),
                    wake: ring.waker().clone(),
                    supported: ring.supported().clone(),
                });
                let _ = told.send(Ok((inbox.clone(), features)));
                drop(options);
                own(ring, &core, &inbox, &pools);
            }
            Err(e) => {
                let _ = told.send(Err(e));
            }
        }
    })?;
    answer
        .recv()
        .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

/// The number of yields of the owner before it sleeps. A thread that just received a completion often submits
/// the next operation soon.
const YIELDS: usize = 4;

/// The loop of the owner: take messages, submit, reap, deliver completions, sleep.
fn own(mut ring: Ring, core: &Core, inbox: &Inbox, pools: &Pools) {
    let mut out = |out: Out| match out {
        Out::Done(request, outcome) => {
            let (reply, completion) = request.finish(core, outcome);
            if let Some(unwanted) = reply.deliver(core, completion) {
                pools.discard(unwanted);
            }
        }
        Out::Worker(request) => pools.push(request),
    };
    let mut linger = Linger::new(YIELDS);
    loop {
        while let Some(message) = inbox.messages.pop() {
            match message {
                Message::Submit(request) if ring.takes(&request.op.body.kind) => {
                    // The ring has a slot for each place, so this happens only with a broken ring.
                    if let Some(request) = ring.push(request) {
                        pools.push(request);
                    }
                }
                // The ring is broken.
                Message::Submit(request) => pools.push(request),
                Message::Cancel(ticket, why) => {
                    // The operation may have moved to a worker while the message was in the queue.
                    if !ring.cancel(ticket, why) {
                        pools.cancel(ticket, why);
                    }
                }
                Message::Register(table, told) => {
                    let _ = told.send(ring.register_files(&table));
                }
                // The flush applies the changes.
                Message::Files => {}
            }
        }
        ring.flush(&mut out);
        ring.drain(&mut out);
        if ring.has_unflushed() {
            // A completion was a short read: its next part has to be submitted.
            continue;
        }
        let over = |ring: &Ring| inbox.closing.load(Ordering::Acquire) && ring.held() == 0;
        if over(&ring) && inbox.messages.is_empty() {
            return;
        }
        if ring.spins() {
            // Completions of a polling ring arrive only when the device is polled. The owner sleeps
            // only if the ring holds no operation.
            ring.wait(Until::count(0), Some(Duration::ZERO));
            std::thread::yield_now();
            continue;
        }
        linger.until(|| !inbox.messages.is_empty() || ring.has_news());
        inbox.sleep.announce();
        if inbox.messages.is_empty() && !over(&ring) {
            ring.wait(Until::count(1), None);
        }
        inbox.sleep.end();
        ring.drain(&mut out);
    }
}
