//! The disk's queue: the order in which requests are served, and the time that each takes.
//!
//! ```text
//!   submit ─► waiting ─► (a place is free) ─┬─► due, by time ─► answered
//!                                           └─► stalled ─release─┘
//! ```
//!
//! A request in `due` or `stalled` occupies one of the places. Two threads in [`Queue::serve`]
//! answer requests. The leader sleeps until the next request is due. It then takes the request,
//! hands the lead to the other thread, and answers outside the lock.
//!
//! Only [`Queue::submit`], [`Queue::serve`] and [`Queue::close`] call answers, and only the disk's
//! own threads call these functions. Other threads do not have the descriptor to which an answer is
//! written.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::num::NonZeroU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use crate::fault::{Fault, FaultId, Kind};
use crate::log::{Counters, Entry, Op};

/// The time that requests take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) latency: Duration,
    pub(crate) seek: Duration,
}

/// Does the work of a request and answers it. With `false`, it does no work and answers with EIO.
pub(crate) type Answer = Box<dyn FnOnce(bool) + Send>;

/// A request from the kernel.
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) arrived: Instant,
    pub(crate) answer: Answer,
}

/// A request in service.
struct Due {
    at: Instant,
    /// The order of requests that are due at the same time.
    turn: u64,
    failed: bool,
    request: Request,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    /// The leader waits on this for the next due request.
    lead: Condvar,
    /// The other threads wait on this for the lead.
    follow: Condvar,
}

struct State {
    made: Instant,
    places: usize,
    delays: Delays,
    /// The number of calls of [`Queue::hurry`] without a call of [`Queue::calm`].
    hurried: usize,
    faults: Vec<(FaultId, Fault)>,
    next_fault: u64,
    waiting: VecDeque<Request>,
    stalled: Vec<Request>,
    due: BinaryHeap<Due>,
    turn: u64,
    /// The end offset of the request that entered service last.
    head: u64,
    led: bool,
    closed: bool,
    record: bool,
    log: Vec<Entry>,
    /// The length of the log at each flush.
    flushes: Vec<usize>,
    counters: Counters,
}

impl Queue {
    pub(crate) fn new(places: usize, delays: Delays, record: bool) -> Self {
        Queue {
            state: Mutex::new(State {
                made: Instant::now(),
                places,
                delays,
                hurried: 0,
                faults: Vec::new(),
                next_fault: 0,
                waiting: VecDeque::new(),
                stalled: Vec::new(),
                due: BinaryHeap::new(),
                turn: 0,
                head: 0,
                led: false,
                closed: false,
                record,
                log: Vec::new(),
                flushes: Vec::new(),
                counters: Counters::default(),
            }),
            lead: Condvar::new(),
            follow: Condvar::new(),
        }
    }

    /// Takes a request. Answers it immediately if it takes no time.
    pub(crate) fn submit(&self, request: Request) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return (request.answer)(false);
        }
        let earliest = state.due.peek().map(|due| due.at);
        state.waiting.push_back(request);
        state.fill_places();
        let now = Instant::now();
        let next = match state.due.peek().map(|due| due.at) {
            Some(at) if at <= now => state.retire(now),
            Some(at) if earliest.is_none_or(|earliest| at < earliest) => {
                self.lead.notify_one();
                None
            }
            _ => None,
        };
        drop(state);
        if let Some((answer, ok)) = next {
            answer(ok);
        }
    }

    /// Answers requests when they are due, until the queue is closed.
    pub(crate) fn serve(&self) {
        // The default timer slack of 50 µs would be added to every wait. If the call fails, answers
        // are late.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut state = self.lock();
        loop {
            while state.led && !state.closed {
                state = wait(&self.follow, state);
            }
            state.led = true;
            let (answer, ok) = loop {
                if state.closed {
                    return;
                }
                let now = Instant::now();
                match state.due.peek().map(|due| due.at) {
                    Some(at) if at <= now => {
                        if let Some(answer) = state.retire(now) {
                            break answer;
                        }
                    }
                    Some(at) => {
                        let waited = self.lead.wait_timeout(state, at - now);
                        state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    }
                    None => state = wait(&self.lead, state),
                }
            };
            state.led = false;
            self.follow.notify_one();
            drop(state);
            answer(ok);
            state = self.lock();
        }
    }

    /// Fails all pending requests, and all later requests.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let mut left: Vec<Request> = mem::take(&mut state.waiting).into();
        left.append(&mut state.stalled);
        left.extend(mem::take(&mut state.due).into_iter().map(|due| due.request));
        drop(state);
        self.lead.notify_all();
        self.follow.notify_all();
        for request in left {
            (request.answer)(false);
        }
    }

    pub(crate) fn inject(&self, fault: Fault) -> FaultId {
        let mut state = self.lock();
        state.next_fault += 1;
        let id = FaultId(state.next_fault);
        state.faults.push((id, fault));
        id
    }

    pub(crate) fn release(&self, released: FaultId) {
        self.retain_faults(|id| id != released);
    }

    pub(crate) fn release_all(&self) {
        self.retain_faults(|_| false);
    }

    fn retain_faults(&self, keep: impl Fn(FaultId) -> bool) {
        let mut state = self.lock();
        state.faults.retain(|(id, _)| keep(*id));
        for request in mem::take(&mut state.stalled) {
            state.start(request);
        }
        self.lead.notify_one();
    }

    pub(crate) fn stalled(&self) -> usize {
        self.lock().stalled.len()
    }

    pub(crate) fn delays(&self) -> Delays {
        self.lock().delays
    }

    pub(crate) fn set_delays(&self, change: impl FnOnce(&mut Delays)) {
        change(&mut self.lock().delays);
    }

    /// Serves requests without latency, including those in service, until [`Queue::calm`].
    pub(crate) fn hurry(&self) {
        let mut state = self.lock();
        state.hurried += 1;
        let now = Instant::now();
        let hastened = mem::take(&mut state.due)
            .into_iter()
            .map(|due| Due { at: now, ..due });
        state.due = hastened.collect();
        self.lead.notify_one();
    }

    pub(crate) fn calm(&self) {
        self.lock().hurried -= 1;
    }

    pub(crate) fn log(&self) -> Vec<Entry> {
        self.lock().log.clone()
    }

    pub(crate) fn take_log(&self) -> Vec<Entry> {
        let mut state = self.lock();
        state.flushes.clear();
        mem::take(&mut state.log)
    }

    /// Logs a flush. It is answered immediately, because written data is already stored.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        if state.record {
            let len = state.log.len();
            state.flushes.push(len);
        }
    }

    pub(crate) fn flushes(&self) -> Vec<usize> {
        self.lock().flushes.clone()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().counters
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_service(&self) -> usize {
        self.due.len() + self.stalled.len()
    }

    fn fill_places(&mut self) {
        while self.in_service() < self.places {
            let Some(request) = self.waiting.pop_front() else {
                return;
            };
            self.start(request);
        }
    }

    /// Puts a request into a free place.
    fn start(&mut self, request: Request) {
        let (op, offset, len) = (request.op, request.offset, u64::from(request.len));
        let fault = self
            .faults
            .iter()
            .find(|(_, fault)| fault.touches(op, offset, len))
            .map(|(_, fault)| fault.kind());
        if fault == Some(Kind::Stall) {
            self.stalled.push(request);
        } else {
            let seek = if self.head == offset {
                Duration::ZERO
            } else {
                self.delays.seek
            };
            self.head = offset.saturating_add(len);
            let cost = if self.hurried > 0 {
                Duration::ZERO
            } else {
                self.delays.latency + seek
            };
            self.turn += 1;
            self.due.push(Due {
                at: Instant::now() + cost,
                turn: self.turn,
                failed: fault == Some(Kind::Eio),
                request,
            });
        }
        self.counters.deepest = self.counters.deepest.max(self.in_service());
    }

    /// Removes the first due request, logs it, and gives its place to the next request.
    fn retire(&mut self, now: Instant) -> Option<(Answer, bool)> {
        let Due {
            failed, request, ..
        } = self.due.pop()?;
        let entry = Entry {
            time: request.arrived - self.made,
            op: request.op,
            offset: request.offset,
            len: request.len,
            latency: now - request.arrived,
            failed,
        };
        self.counters.count(&entry);
        if self.record {
            self.log.push(entry);
        }
        self.fill_places();
        Some((request.answer, !failed))
    }
}

fn wait<'a>(condvar: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condvar.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// The greatest element of the heap is the request that is due first.
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.turn).cmp(&(self.at, self.turn))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    fn queue(places: usize, seek_ms: u64) -> Queue {
        let seek = Duration::from_millis(seek_ms);
        let latency = Duration::ZERO;
        Queue::new(places, Delays { latency, seek }, true)
    }

    fn read(queue: &Queue, offset: u64, answers: &mpsc::Sender<(u64, bool)>) {
        let answers = answers.clone();
        queue.submit(Request {
            op: Op::Read,
            offset,
            len: 4096,
            arrived: Instant::now(),
            answer: Box::new(move |ok| answers.send((offset, ok)).unwrap()),
        });
    }

    #[test]
    fn a_stalled_request_holds_its_place() {
        let queue = queue(2, 0);
        let (sender, answers) = mpsc::channel();
        queue.inject(Fault::stall(0..1));
        read(&queue, 0, &sender);
        read(&queue, 4096, &sender);
        assert_eq!(answers.try_recv(), Ok((4096, true)));
        read(&queue, 0, &sender);
        read(&queue, 8192, &sender);
        assert!(answers.try_recv().is_err(), "both places are taken");
        assert_eq!(queue.stalled(), 2);
        queue.close();
        let mut failed: Vec<_> = answers.try_iter().collect();
        failed.sort_unstable();
        assert_eq!(failed, [(0, false), (0, false), (8192, false)]);
    }

    #[test]
    fn released_requests_are_served() {
        let queue = Arc::new(queue(2, 0));
        let server = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.serve()
        });
        let (sender, answers) = mpsc::channel();
        let stall = queue.inject(Fault::stall(0..1));
        read(&queue, 0, &sender);
        assert!(answers.try_recv().is_err());
        queue.release(stall);
        assert_eq!(answers.recv(), Ok((0, true)));
        queue.close();
        server.join().unwrap();
    }

    #[test]
    fn a_request_that_follows_on_pays_no_seek() {
        let queue = queue(8, 3_600_000);
        let (sender, answers) = mpsc::channel();
        read(&queue, 0, &sender);
        read(&queue, 4096, &sender);
        read(&queue, 1 << 20, &sender);
        assert_eq!(answers.try_iter().count(), 2);
        queue.close();
        assert_eq!(answers.recv(), Ok((1 << 20, false)));
    }

    #[test]
    fn faults_fail_and_are_logged() {
        let queue = queue(1, 0);
        let (sender, answers) = mpsc::channel();
        let bad = queue.inject(Fault::eio(0..1));
        read(&queue, 0, &sender);
        queue.release(bad);
        read(&queue, 0, &sender);
        assert_eq!(
            answers.try_iter().collect::<Vec<_>>(),
            [(0, false), (0, true)]
        );
        let failed: Vec<_> = queue.log().iter().map(|entry| entry.failed).collect();
        assert_eq!(failed, [true, false]);
        assert_eq!(queue.counters().failed, 1);
    }
}
