//! The tables of TPC-H as Parquet files.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::arrow::ArrowWriter;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// The names of the tables.
pub const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

/// The file of a table.
pub fn file(dir: &Path, table: &str) -> PathBuf {
    dir.join(format!("{table}.parquet"))
}

/// Makes the files that do not exist, and writes them to the disk.
pub fn make_missing(dir: &Path, scale: f64) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(dir)?;
    for table in TABLES {
        let path = file(dir, table);
        if path.exists() {
            continue;
        }
        eprintln!("making {}", path.display());
        // An interrupted run leaves no table under its name.
        let part = path.with_extension("part");
        let file = File::create(&part)?;
        match table {
            "customer" => write(
                &file,
                CustomerArrow::new(CustomerGenerator::new(scale, 1, 1)),
            )?,
            "lineitem" => write(
                &file,
                LineItemArrow::new(LineItemGenerator::new(scale, 1, 1)),
            )?,
            "nation" => write(&file, NationArrow::new(NationGenerator::new(scale, 1, 1)))?,
            "orders" => write(&file, OrderArrow::new(OrderGenerator::new(scale, 1, 1)))?,
            "part" => write(&file, PartArrow::new(PartGenerator::new(scale, 1, 1)))?,
            "partsupp" => write(
                &file,
                PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1)),
            )?,
            "region" => write(&file, RegionArrow::new(RegionGenerator::new(scale, 1, 1)))?,
            _ => write(
                &file,
                SupplierArrow::new(SupplierGenerator::new(scale, 1, 1)),
            )?,
        }
        file.sync_all()?;
        fs::rename(&part, &path)?;
    }
    Ok(())
}

fn write(
    file: &File,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<(), Box<dyn Error>> {
    let mut batches = batches.peekable();
    let Some(Ok(first)) = batches.peek() else {
        return Err("a table without rows".into());
    };
    let mut writer = ArrowWriter::try_new(file, first.schema(), None)?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}
