//! The owner: the thread that drives the ring of a shared engine.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crossbeam_queue::SegQueue;

use crate::engine::class::Class;
use crate::engine::completion::Ticket;
use crate::engine::core::Core;
use crate::engine::features::Features;
use crate::engine::options::Options;
use crate::engine::pools::Pools;
use crate::engine::request::Request;
use crate::engine::ring::operations::SupportedOperations;
use crate::engine::ring::{Returned, Ring, WaitFor};
use crate::engine::yield_before_sleep::YieldBeforeSleep;
use crate::error::ErrorKind;
use crate::handle::registered::{Notified, Table};
use crate::sys::eventfd::notify;
use crate::sys::sync::ordered::{self, fence};
use crate::sys::sync::spawn;

/// The messages to the owner thread.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: SegQueue<Message>,
    sleep: Sleep,
    closing: AtomicBool,
    wake: Arc<OwnedFd>,
    /// The operations that the ring supports.
    pub(super) operations: SupportedOperations,
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
        self.wake();
    }

    fn wake(&self) {
        if self.sleep.must_be_woken() {
            notify(&self.wake);
        }
    }

    /// Ends the owner, once its ring is empty.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
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
    let (tx, rx) = mpsc::channel();
    let (core, pools) = (core.clone(), pools.clone());
    // The ring has a slot for each permit of each class.
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
                    operations: ring.operations().clone(),
                });
                let _ = tx.send(Ok((inbox.clone(), features)));
                drop(options);
                drive(ring, &core, &inbox, &pools);
            }
            Err(e) => {
                let _ = tx.send(Err(e));
            }
        }
    })?;
    rx.recv()
        .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

/// The number of yields of the owner before it sleeps. A thread that just received a completion
/// often submits the next operation soon.
const YIELDS: usize = 4;

/// Passes a message on to the ring, or to the workers if the ring is broken.
fn take(message: Message, ring: &mut Ring, pools: &Pools) {
    match message {
        Message::Submit(request) if ring.supports(&request.op.body.kind) => {
            // The ring has a slot for each permit, so this happens only with a broken ring.
            if let Some(request) = ring.push(request) {
                pools.push(request);
            }
        }
        Message::Submit(request) => pools.push(request),
        Message::Cancel(ticket, why) => {
            // The operation may have moved to a worker while the message was in the queue.
            if !ring.cancel(ticket, why) {
                pools.cancel(ticket, why);
            }
        }
        Message::Register(table, tx) => {
            let _ = tx.send(ring.register_files(&table));
        }
        // The flush applies the changes.
        Message::Files => {}
    }
}

/// The loop of the owner: take messages, submit, reap, deliver completions, sleep.
fn drive(mut ring: Ring, core: &Core, inbox: &Inbox, pools: &Pools) {
    let mut out = |out: Returned| match out {
        Returned::Done(request, outcome) => {
            if let Some(dropped) = request.deliver(core, outcome) {
                pools.discard(dropped);
            }
        }
        Returned::Worker(request) => pools.push(request),
    };
    let mut before_sleep = YieldBeforeSleep::new(YIELDS);
    loop {
        while let Some(message) = inbox.messages.pop() {
            take(message, &mut ring, pools);
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
        if ring.must_poll() {
            // Completions of a polling ring arrive only when the device is polled. The owner sleeps
            // only if the ring holds no operation.
            ring.wait(WaitFor::count(0), Some(Duration::ZERO));
            std::thread::yield_now();
            continue;
        }
        before_sleep.until(|| !inbox.messages.is_empty() || ring.has_ready_completions());
        inbox.sleep.announce();
        if inbox.messages.is_empty() && !over(&ring) {
            ring.wait(WaitFor::count(1), None);
        }
        inbox.sleep.end();
        ring.drain(&mut out);
    }
}

/// True while the owner sleeps, or is about to.
#[derive(Debug)]
pub(super) struct Sleep(ordered::AtomicBool);

impl Sleep {
    pub(super) fn new() -> Sleep {
        Sleep(ordered::AtomicBool::new(false))
    }

    /// Announces that the owner is about to sleep. It must check its queue after this, and not
    /// sleep if there is a message.
    pub(super) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Records that the owner is awake.
    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Called after a message was queued. Returns true if the sender must wake the owner. Only one
    /// sender gets true.
    pub(super) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, nowait_loom))]
mod model {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// The owner's eventfd: a counter. A read waits for a count above zero and resets it.
    struct Event(Mutex<u64>, Condvar);

    impl Event {
        fn write(&self) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_one();
        }

        fn read(&self) {
            let mut count = self.0.lock().unwrap();
            while *count == 0 {
                count = self.1.wait(count).unwrap();
            }
            *count = 0;
        }
    }

    /// An owner receives one message from each sender, and sleeps while there is none.
    fn all_arrive(senders: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let sleep = Arc::new(Sleep::new());
            let messages = Arc::new(AtomicUsize::new(0));
            let event = Arc::new(Event(Mutex::new(0), Condvar::new()));
            for _ in 0..senders {
                let (sleep, messages, event) = (sleep.clone(), messages.clone(), event.clone());
                loom::thread::spawn(move || {
                    messages.fetch_add(1, Ordering::Release);
                    if sleep.must_be_woken() {
                        event.write();
                    }
                });
            }
            while messages.load(Ordering::Acquire) < senders {
                let seen = messages.load(Ordering::Acquire);
                sleep.announce();
                if messages.load(Ordering::Acquire) == seen && seen < senders {
                    event.read();
                }
                sleep.end();
            }
        });
    }

    #[test]
    fn a_message_wakes_the_owner() {
        all_arrive(1, 3);
    }

    #[test]
    fn messages_of_two_senders_wake_the_owner() {
        all_arrive(2, 1);
    }
}
