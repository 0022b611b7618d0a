//! Random calls on filesystems of each kind, beside a store in memory.

use futures_util::TryStreamExt;
use proptest::prelude::*;

use super::NowaitFileSystem;
use super::object_store::memory::InMemory;
use super::object_store::path::Path;
use super::object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode};
use crate::places::Place;

const LOCATIONS: [&str; 5] = ["a", "b", "d/a", "d/b", "e/f/a"];

#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Create,
    Parts,
    Copy,
    CopyNew,
    Rename,
    RenameNew,
    Delete,
}

fn calls() -> impl Strategy<Value = Vec<(Call, usize, usize)>> {
    let call = prop::sample::select(vec![
        Call::Put,
        Call::Create,
        Call::Parts,
        Call::Copy,
        Call::CopyNew,
        Call::Rename,
        Call::RenameNew,
        Call::Delete,
    ]);
    let locations = (0..LOCATIONS.len(), 1..LOCATIONS.len());
    let one = (call, locations).prop_map(|(call, (from, further))| {
        // A store in memory loses an object that is renamed to itself.
        (call, from, (from + further) % LOCATIONS.len())
    });
    prop::collection::vec(one, 1..40)
}

/// Makes a call with this text as the bytes. Returns the kind of the error.
async fn make(
    store: &dyn ObjectStore,
    call: Call,
    from: &Path,
    to: &Path,
    text: &str,
) -> Result<(), &'static str> {
    let bytes = text.to_owned();
    let made = match call {
        Call::Put => store.put(to, bytes.into()).await.map(drop),
        Call::Create => {
            let create = PutMode::Create.into();
            store.put_opts(to, bytes.into(), create).await.map(drop)
        }
        Call::Parts => {
            let mut upload = store.put_multipart(to).await.unwrap();
            for part in text.split_inclusive(' ') {
                upload.put_part(part.to_owned().into()).await.unwrap();
            }
            upload.complete().await.map(drop)
        }
        Call::Copy => store.copy(from, to).await,
        Call::CopyNew => store.copy_if_not_exists(from, to).await,
        Call::Rename => store.rename(from, to).await,
        Call::RenameNew => store.rename_if_not_exists(from, to).await,
        // A store in memory deletes what does not exist.
        Call::Delete => match store.head(to).await {
            Ok(_) => store.delete(to).await,
            Err(missing) => Err(missing),
        },
    };
    made.map_err(|error| match error {
        Error::NotFound { .. } => "NotFound",
        Error::AlreadyExists { .. } => "AlreadyExists",
        other => panic!("{call:?} {from} {to}: {other}"),
    })
}

/// The locations and bytes of all objects.
async fn content(store: &dyn ObjectStore) -> Vec<(String, Vec<u8>)> {
    let list: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut content = Vec::new();
    for object in list {
        let bytes = store.get(&object.location).await.unwrap().bytes().await;
        content.push((object.location.to_string(), bytes.unwrap().to_vec()));
    }
    content.sort();
    content
}

#[test]
fn random_calls_have_the_results_of_a_store_in_memory() {
    let places = slowdisk::require!(Place::all());
    let config = ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(calls in calls(), durable: bool)| {
        for place in &places {
            std::fs::remove_dir_all(place.root()).unwrap();
            std::fs::create_dir(place.root()).unwrap();
            let store = NowaitFileSystem::new_with_prefix(place.root()).unwrap();
            let store = store.with_fsync(durable).with_automatic_cleanup(true);
            let memory = InMemory::new();
            pollster::block_on(async {
                for (number, (call, from, to)) in calls.iter().enumerate() {
                    let [from, to] = [from, to].map(|at| Path::from(LOCATIONS[*at]));
                    let text = format!("object {number}");
                    let expected = make(&memory, *call, &from, &to, &text).await;
                    let made = make(&store, *call, &from, &to, &text).await;
                    assert_eq!(made, expected, "{}: {call:?} {from} {to}", place.name);
                    assert_eq!(content(&store).await, content(&memory).await);
                }
            });
        }
    });
}
