//! Metrics of many results as one Parquet file: one row per number of each run, as in the CSV
//! table, in typed columns. Selecting the runs and the path of the file is up to the caller. No
//! other crate depends on the Parquet library.

use std::io::Write;
use std::sync::Arc;

use horolog_record::{numeric_values, rfc3339_micros};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use thiserror::Error;

/// Schema of the file. The start time of a run is absent if its result states it in an unknown
/// format.
const SCHEMA: &str = "message figures {
    REQUIRED INT64 run;
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED BYTE_ARRAY schema (STRING);
    OPTIONAL INT64 started (TIMESTAMP(MICROS, true));
    REQUIRED BYTE_ARRAY command (STRING);
    REQUIRED BYTE_ARRAY path (STRING);
    REQUIRED DOUBLE value;
}";
/// Number of buffered rows from which on they are written as one row group; readers can skip whole
/// row groups.
const ROW_GROUP_SIZE: usize = 1 << 16;

/// Reason why a Parquet file could not be written.
#[derive(Debug, Error)]
#[error("cannot write the columns: {0}")]
pub struct ParquetWriteError(#[from] ParquetError);

/// Buffered rows that are not yet written, by column.
#[derive(Default)]
struct PendingRows {
    run: Vec<i64>,
    name: Vec<ByteArray>,
    schema: Vec<ByteArray>,
    /// Start times of the rows that have one.
    started: Vec<i64>,
    /// Definition level of the start time: 1 if a row has one, otherwise 0.
    started_levels: Vec<i16>,
    command: Vec<ByteArray>,
    path: Vec<ByteArray>,
    value: Vec<f64>,
}

impl PendingRows {
    fn push(&mut self, run: i64, name: &str, command: &str, result: &Value) {
        let [name, command] = [name, command].map(ByteArray::from);
        let text_field = |name: &str| result[name].as_str().unwrap_or_default();
        let schema = ByteArray::from(text_field("schema"));
        let started = rfc3339_micros(text_field("started"));
        for (path, value) in numeric_values(result) {
            self.run.push(run);
            self.name.push(name.clone());
            self.schema.push(schema.clone());
            self.started.extend(started);
            self.started_levels.push(i16::from(started.is_some()));
            self.command.push(command.clone());
            self.path.push(ByteArray::from(&*path));
            self.value.push(value);
        }
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        write_column::<Int64Type, _>(group, &self.run, None)?;
        write_column::<ByteArrayType, _>(group, &self.name, None)?;
        write_column::<ByteArrayType, _>(group, &self.schema, None)?;
        write_column::<Int64Type, _>(group, &self.started, Some(&self.started_levels))?;
        write_column::<ByteArrayType, _>(group, &self.command, None)?;
        write_column::<ByteArrayType, _>(group, &self.path, None)?;
        write_column::<DoubleType, _>(group, &self.value, None)
    }
}

/// Writes the next column of the schema. `definition_levels` mark the rows with a value in an
/// optional column.
fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definition_levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let next = group.next_column()?;
    let mut column = next.ok_or_else(|| ParquetError::General("no such column".to_owned()))?;
    column.typed::<T>().write_batch(values, definition_levels, None)?;
    column.close()
}

/// Writer of a Parquet file with the metrics of results.
pub struct ParquetMetricWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: PendingRows,
}

impl<W: Write + Send> ParquetMetricWriter<W> {
    /// Creates a writer and writes the header of the file.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    pub fn new(output: W) -> Result<Self, ParquetWriteError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
        Ok(Self { file, rows: PendingRows::default() })
    }

    /// Adds one row per number of a result, with the number, name (empty without one) and command
    /// of its run.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    pub fn add(
        &mut self,
        run: i64,
        name: &str,
        command: &str,
        result: &Value,
    ) -> Result<(), ParquetWriteError> {
        self.rows.push(run, name, command, result);
        if self.rows.run.len() >= ROW_GROUP_SIZE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ParquetWriteError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.file.next_row_group()?;
        rows.write(&mut group)?;
        group.close()?;
        Ok(())
    }

    /// Writes the remaining rows and the footer, without which the file is not readable.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    pub fn finish(mut self) -> Result<W, ParquetWriteError> {
        if !self.rows.run.is_empty() {
            self.flush()?;
        }
        Ok(self.file.into_inner()?)
    }
}

#[cfg(test)]
mod tests;
