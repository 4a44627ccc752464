//! Metrics of many results as one Parquet file: a row for each number of each run, as in the CSV
//! table, in typed columns. Only this crate uses the library that writes the format. It decides
//! neither the runs nor the location of the file.

use std::io::Write;
use std::sync::Arc;

use horolog_record::{numbers, rfc3339_micros};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use thiserror::Error;

/// Columns. The start of a run is absent if a result states it in no known form.
const SCHEMA: &str = "message figures {
    REQUIRED INT64 run;
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED BYTE_ARRAY schema (STRING);
    OPTIONAL INT64 started (TIMESTAMP(MICROS, true));
    REQUIRED BYTE_ARRAY command (STRING);
    REQUIRED BYTE_ARRAY path (STRING);
    REQUIRED DOUBLE value;
}";
/// Rows buffered in memory before they are written; readers skip groups of them as a whole.
const GROUP_ROWS: usize = 1 << 16;

/// Reason for which a columns file was not written.
#[derive(Debug, Error)]
#[error("cannot write the columns: {0}")]
pub struct ColumnsError(#[from] ParquetError);

/// Rows not yet written, column by column.
#[derive(Default)]
struct PendingRows {
    run: Vec<i64>,
    name: Vec<ByteArray>,
    schema: Vec<ByteArray>,
    /// Start times of the rows that have one.
    started: Vec<i64>,
    /// 1 for a row with a start time.
    has_started: Vec<i16>,
    command: Vec<ByteArray>,
    path: Vec<ByteArray>,
    value: Vec<f64>,
}

impl PendingRows {
    fn push(&mut self, run: i64, name: &str, command: &str, result: &Value) {
        let [name, command] = [name, command].map(ByteArray::from);
        let of = |name: &str| result[name].as_str().unwrap_or_default();
        let schema = ByteArray::from(of("schema"));
        let started = rfc3339_micros(of("started"));
        for (path, value) in numbers(result) {
            self.run.push(run);
            self.name.push(name.clone());
            self.schema.push(schema.clone());
            self.started.extend(started);
            self.has_started.push(i16::from(started.is_some()));
            self.command.push(command.clone());
            self.path.push(ByteArray::from(&*path));
            self.value.push(value);
        }
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        column::<Int64Type, _>(group, &self.run, None)?;
        column::<ByteArrayType, _>(group, &self.name, None)?;
        column::<ByteArrayType, _>(group, &self.schema, None)?;
        column::<Int64Type, _>(group, &self.started, Some(&self.has_started))?;
        column::<ByteArrayType, _>(group, &self.command, None)?;
        column::<ByteArrayType, _>(group, &self.path, None)?;
        column::<DoubleType, _>(group, &self.value, None)
    }
}

/// Writes the next column of the schema.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    is_there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let next = group.next_column()?;
    let mut column = next.ok_or_else(|| ParquetError::General("no such column".to_owned()))?;
    column.typed::<T>().write_batch(values, is_there, None)?;
    column.close()
}

/// Writer of a file.
pub struct FigureWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: PendingRows,
}

impl<W: Write + Send> FigureWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn new(to: W) -> Result<Self, ColumnsError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        Ok(Self { file, rows: PendingRows::default() })
    }

    /// Adds a row for each number of a result, with the number, name (empty if it has none) and
    /// command of its run.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn add(
        &mut self,
        run: i64,
        name: &str,
        command: &str,
        result: &Value,
    ) -> Result<(), ColumnsError> {
        self.rows.push(run, name, command, result);
        if self.rows.run.len() >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ColumnsError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.file.next_row_group()?;
        rows.write(&mut group)?;
        group.close()?;
        Ok(())
    }

    /// Ends the file, which is unreadable before.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> Result<W, ColumnsError> {
        if !self.rows.run.is_empty() {
            self.flush()?;
        }
        Ok(self.file.into_inner()?)
    }
}

#[cfg(test)]
mod tests;
