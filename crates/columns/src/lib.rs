//! The figures of many results as one Parquet file: a row for each number of each run, as in the
//! table of comma-separated values, in columns that have types. The library that writes the format
//! lives here and nowhere else. It does not say which runs, nor where the file goes.

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

/// The columns. When a run began is absent where a result says it in no form that is known here.
const SCHEMA: &str = "message figures {
    REQUIRED INT64 run;
    REQUIRED BYTE_ARRAY name (STRING);
    REQUIRED BYTE_ARRAY schema (STRING);
    OPTIONAL INT64 started (TIMESTAMP(MICROS, true));
    REQUIRED BYTE_ARRAY command (STRING);
    REQUIRED BYTE_ARRAY place (STRING);
    REQUIRED DOUBLE value;
}";
/// Rows that are held in memory before they are written; readers skip groups of them as a whole.
const GROUP_ROWS: usize = 1 << 16;

/// Why a file of columns was not written.
#[derive(Debug, Error)]
#[error("the columns cannot be written: {0}")]
pub struct ColumnsError(#[from] ParquetError);

/// Rows that are not written yet, column by column.
#[derive(Default)]
struct Rows {
    run: Vec<i64>,
    name: Vec<ByteArray>,
    schema: Vec<ByteArray>,
    /// Of those rows that have it.
    started: Vec<i64>,
    /// 1 for a row that has it.
    has_started: Vec<i16>,
    command: Vec<ByteArray>,
    place: Vec<ByteArray>,
    value: Vec<f64>,
}

impl Rows {
    fn push(&mut self, run: i64, name: &str, command: &str, result: &Value) {
        let [name, command] = [name, command].map(ByteArray::from);
        let of = |name: &str| result[name].as_str().unwrap_or_default();
        let schema = ByteArray::from(of("schema"));
        let started = rfc3339_micros(of("started"));
        for (place, value) in numbers(result) {
            self.run.push(run);
            self.name.push(name.clone());
            self.schema.push(schema.clone());
            self.started.extend(started);
            self.has_started.push(i16::from(started.is_some()));
            self.command.push(command.clone());
            self.place.push(ByteArray::from(&*place));
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
        column::<ByteArrayType, _>(group, &self.place, None)?;
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

/// A file that is being written.
pub struct FigureWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: Rows,
}

impl<W: Write + Send> FigureWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Nothing can be written there.
    pub fn new(to: W) -> Result<Self, ColumnsError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        Ok(Self { file, rows: Rows::default() })
    }

    /// Adds a row for each number of a result, which is that of a run with this number, name (empty
    /// where it has none) and command.
    ///
    /// # Errors
    ///
    /// Nothing can be written any more.
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

    /// Ends the file, which could not be read before.
    ///
    /// # Errors
    ///
    /// Nothing can be written any more.
    pub fn finish(mut self) -> Result<W, ColumnsError> {
        if !self.rows.run.is_empty() {
            self.flush()?;
        }
        Ok(self.file.into_inner()?)
    }
}

#[cfg(test)]
mod tests;
