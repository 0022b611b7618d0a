//! The contenders.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use nowait::mapping::Budget;
use nowait_cli::problem::Problem;
use nowait_object_store::v0_13::NowaitFileSystem;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use crate::harness::contender::{Named, Word};

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// NowaitFileSystem
    Nowait,
    /// NowaitFileSystem that borrows what is read often from mappings
    NowaitMapped,
    /// object_store's LocalFileSystem
    Local,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self != Name::Local
    }
}

impl Name {
    /// A new store of the objects below a directory.
    pub fn store(self, root: &Path) -> Result<Arc<dyn ObjectStore>, Problem> {
        let store = match self {
            Name::Nowait => {
                NowaitFileSystem::new_with_prefix(root).map(|store| Arc::new(store) as Arc<_>)
            }
            Name::NowaitMapped => {
                let budget = Budget::process().map_err(|e| Problem::of(self.word(), e))?;
                NowaitFileSystem::new_with_prefix(root)
                    .map(|store| Arc::new(store.with_mapped_reads(&budget)) as Arc<_>)
            }
            Name::Local => {
                LocalFileSystem::new_with_prefix(root).map(|store| Arc::new(store) as Arc<_>)
            }
        };
        store.map_err(|e| Problem::of(self.word(), e))
    }
}
