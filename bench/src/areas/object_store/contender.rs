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
        let ours = NowaitFileSystem::new_with_prefix;
        let failed = |e| Problem::of(self.word(), e);
        Ok(match self {
            Name::Nowait => Arc::new(ours(root).map_err(failed)?),
            Name::NowaitMapped => {
                let budget = Budget::process()?;
                Arc::new(ours(root).map_err(failed)?.with_mapped_reads(&budget))
            }
            Name::Local => Arc::new(LocalFileSystem::new_with_prefix(root).map_err(failed)?),
        })
    }
}
