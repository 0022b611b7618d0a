//! A paused clock of tokio stands still during the calls of the store.

use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep, timeout};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use crate::common::{pattern, scratch};

/// Awaits a call that must end before any timer of the paused clock.
async fn in_no_time<T, E: std::fmt::Debug>(
    what: &str,
    call: impl Future<Output = Result<T, E>>,
) -> T {
    let done = timeout(Duration::from_millis(1), call).await;
    let done = done.unwrap_or_else(|_| panic!("{what}: the clock has gone on"));
    done.unwrap_or_else(|error| panic!("{what}: {error:?}"))
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_stands_still_during_every_call() {
    let dir = scratch();
    let store = NowaitFileSystem::new_with_prefix(dir.path()).unwrap();
    let begun = Instant::now();
    for round in 0..5 {
        let prefix = Path::from(format!("a/{round}"));
        let at = |name: &str| Path::from(format!("a/{round}/{name}"));
        let bytes = PutPayload::from(pattern(3 << 20));
        in_no_time("put", store.put(&at("x"), bytes.clone())).await;
        slowdisk::evict(&std::fs::File::open(dir.path().join(format!("a/{round}/x"))).unwrap())
            .unwrap();
        let got = in_no_time("get", store.get(&at("x"))).await;
        assert_eq!(in_no_time("bytes", got.bytes()).await.len(), 3 << 20);
        let got = in_no_time("get", store.get(&at("x"))).await;
        let mut parts = got.into_stream();
        while let Some(part) = parts.next().await {
            part.unwrap();
        }
        in_no_time("get_range", store.get_range(&at("x"), 5..1000)).await;
        in_no_time("head", store.head(&at("x"))).await;
        in_no_time("copy", store.copy(&at("x"), &at("y"))).await;
        in_no_time("rename", store.rename(&at("y"), &at("z"))).await;
        let mut upload = in_no_time("put_multipart", store.put_multipart(&at("u"))).await;
        in_no_time("put_part", upload.put_part(bytes.clone())).await;
        in_no_time("complete", upload.complete()).await;
        let listed = store.list(Some(&prefix)).try_collect::<Vec<_>>();
        assert_eq!(in_no_time("list", listed).await.len(), 3);
        let listed = store.list_with_delimiter(Some(&prefix));
        assert_eq!(
            in_no_time("list_with_delimiter", listed)
                .await
                .objects
                .len(),
            3
        );
        in_no_time("delete", store.delete(&at("z"))).await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(100_000)).await;
}
