//! The requests of one turn, and their latencies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_http::services::ServeDir;
use tower_http::services::fs::{Backend, DefaultServeDirFallback};

use super::files;

/// The longest time of a turn. It ends earlier if each uncached file was read.
const TURN: Duration = Duration::from_millis(350);
/// The number of tasks that request cached files.
const CACHED_TASKS: usize = 4;
/// The number of tasks that request uncached files.
const UNCACHED_TASKS: usize = 32;
/// The pause of a task between two requests for cached files.
const PAUSE: Duration = Duration::from_millis(1);

type Service<B> = ServeDir<DefaultServeDirFallback, B>;

/// The latencies of one turn.
pub struct Latencies {
    cached: Vec<Duration>,
    uncached: Vec<Duration>,
}

impl Latencies {
    pub fn to_json(&self) -> Value {
        json!({ "cached": percentiles(&self.cached), "uncached": percentiles(&self.uncached) })
    }
}

/// The median and the 99th percentile in microseconds; null if there is no latency.
fn percentiles(latencies: &[Duration]) -> Value {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| {
        let latency = sorted.get(sorted.len() * share / 100);
        latency.map(|latency| latency.as_secs_f64() * 1e6)
    };
    json!({ "count": sorted.len(), "p50_us": at(50), "p99_us": at(99) })
}

/// The state that the tasks of a turn share.
struct Turn {
    end: Instant,
    next: AtomicUsize,
    is_over: AtomicBool,
}

/// Makes the requests of a turn.
pub async fn turn<B: Backend>(service: Service<B>) -> io::Result<Latencies> {
    let turn = Arc::new(Turn {
        end: Instant::now() + TURN,
        next: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let (mut cached, mut uncached) = (JoinSet::new(), JoinSet::new());
    for number in 0..CACHED_TASKS {
        cached.spawn(request_cached(turn.clone(), service.clone(), number));
    }
    for _ in 0..UNCACHED_TASKS {
        uncached.spawn(request_uncached(turn.clone(), service.clone()));
    }
    Ok(Latencies {
        uncached: all(uncached).await?,
        cached: all(cached).await?,
    })
}

/// The latencies of all tasks.
async fn all(mut tasks: JoinSet<io::Result<Vec<Duration>>>) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while let Some(task) = tasks.join_next().await {
        latencies.extend(task??);
    }
    Ok(latencies)
}

impl Turn {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || Instant::now() > self.end
    }
}

async fn request_cached<B: Backend>(
    turn: Arc<Turn>,
    service: Service<B>,
    first: usize,
) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for number in (first..).step_by(CACHED_TASKS) {
        if turn.is_over() {
            break;
        }
        let name = files::cached(number % files::CACHED);
        latencies.push(request(service.clone(), name).await?);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(latencies)
}

async fn request_uncached<B: Backend>(
    turn: Arc<Turn>,
    service: Service<B>,
) -> io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while !turn.is_over() {
        let number = turn.next.fetch_add(1, Ordering::Relaxed);
        if number >= files::UNCACHED {
            turn.is_over.store(true, Ordering::Relaxed);
            break;
        }
        latencies.push(request(service.clone(), files::uncached(number)).await?);
    }
    Ok(latencies)
}

/// The time from a request to the last byte of its response.
async fn request<B: Backend>(service: Service<B>, name: String) -> io::Result<Duration> {
    let begun = Instant::now();
    let request = Request::get(format!("/{name}")).body(());
    let request = request.map_err(io::Error::other)?;
    let Ok(response) = service.oneshot(request).await;
    if response.status() != StatusCode::OK {
        return Err(io::Error::other(format!("{name}: {}", response.status())));
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(begun.elapsed())
}
