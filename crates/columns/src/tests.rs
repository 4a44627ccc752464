//! Files are read back by the library's reader, which shares the format's description with
//! the writer but not its code.

use bytes::Bytes;
use parquet::basic::{LogicalType, Type};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Name of all runs.
const NAME: &str = "before";
const COMMAND: &str = "horolog load ntp 'a b'";

fn written(results: &[(i64, Value)]) -> SerializedFileReader<Bytes> {
    let mut writer = ParquetMetricWriter::new(Vec::new()).unwrap();
    for (run, result) in results {
        writer.add(*run, NAME, COMMAND, result).unwrap();
    }
    SerializedFileReader::new(Bytes::from(writer.finish().unwrap())).unwrap()
}

type Row = (i64, String, Option<i64>, String, f64);

fn rows(file: &SerializedFileReader<Bytes>) -> Vec<Row> {
    let row = |row: parquet::record::Row| {
        let columns: Vec<_> = row.into_columns().into_iter().map(|(_, field)| field).collect();
        let [
            Field::Long(run),
            Field::Str(name),
            Field::Str(schema),
            started,
            Field::Str(command),
            Field::Str(path),
            Field::Double(value),
        ] = &columns[..]
        else {
            panic!("{columns:?}")
        };
        assert_eq!((name.as_str(), command.as_str()), (NAME, COMMAND));
        let started = match started {
            Field::TimestampMicros(micros) => Some(*micros),
            Field::Null => None,
            other => panic!("{other:?}"),
        };
        (*run, schema.clone(), started, path.clone(), *value)
    };
    file.get_row_iter(None).unwrap().map(|one| row(one.unwrap())).collect()
}

#[test]
fn columns_have_names_and_types() {
    let file = written(&[]);
    let schema = file.metadata().file_metadata().schema_descr();
    let columns: Vec<_> =
        schema.columns().iter().map(|column| (column.name(), column.physical_type())).collect();
    let expected = [
        ("run", Type::INT64),
        ("name", Type::BYTE_ARRAY),
        ("schema", Type::BYTE_ARRAY),
        ("started", Type::INT64),
        ("command", Type::BYTE_ARRAY),
        ("path", Type::BYTE_ARRAY),
        ("value", Type::DOUBLE),
    ];
    assert_eq!(columns, expected);
    let started = schema.column(3).logical_type_ref().cloned();
    assert!(
        matches!(&started, Some(LogicalType::Timestamp(time)) if time.is_adjusted_to_u_t_c),
        "{started:?}"
    );
    assert_eq!(rows(&file), [], "no run is a sound file");
}

#[test]
fn each_number_is_a_row() {
    let result = json!({
        "schema": "horolog.load/2",
        "started": "2026-01-02T03:04:05.678Z",
        "trials": [{ "intended_rate": 1000.0, "sent": 7 }],
    });
    let foreign = json!({ "schema": "horolog.new/9", "started": "today", "x": -0.5 });
    let file = written(&[(3, result), (4, foreign), (5, json!({}))]);
    let load = |path: &str, value| {
        let started = Some(1_767_323_045_678_000);
        (3, "horolog.load/2".to_owned(), started, path.to_owned(), value)
    };
    let expected = [
        load("trials[intended_rate=1000].intended_rate", 1000.0),
        load("trials[intended_rate=1000].sent", 7.0),
        (4, "horolog.new/9".to_owned(), None, "x".to_owned(), -0.5),
    ];
    assert_eq!(rows(&file), expected);
}

#[test]
fn many_rows_are_in_several_groups() {
    let fields = (0..1_000).map(|field| (format!("f{field:03}"), json!(field)));
    let result = Value::Object(fields.collect());
    let results: Vec<_> = (0..70).map(|run| (run, result.clone())).collect();
    let file = written(&results);
    assert_eq!(file.num_row_groups(), 2);
    let rows = rows(&file);
    assert_eq!(rows.len(), 70_000);
    assert!(rows.iter().enumerate().all(|(index, row)| row.4 as usize == index % 1_000));
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        run in any::<i64>(),
        schema in any::<String>(),
        numbers in prop::collection::btree_map("[a-r]{1,8}", prop::num::f64::NORMAL, 0..20),
    ) {
        let mut result = json!({ "schema": schema });
        for (name, number) in &numbers {
            result[name.as_str()] = json!(number);
        }
        let read = rows(&written(&[(run, result)]));
        let expected: Vec<_> = numbers
            .into_iter()
            .map(|(name, number)| (run, schema.clone(), None, name, number))
            .collect();
        prop_assert_eq!(read, expected);
    }
}
