//! CSV tables for other programs (RFC 4180): one line for each measured item, with the unit in the
//! column's name.

use std::fmt::Write;

use horolog_record::{QueryResult, TimestampSource, numeric_values};
use serde_json::Value;

/// Header line of [`query`], without a newline.
const QUERY: &str = "server,address,port,sequence,t1_ns,t2_ns,t3_ns,t4_ns,offset_ns,delay_ns,\
                     dispersion_ns,bound_ns,transmit_timestamp,receive_timestamp,interleaved";

/// Returns every sample of a query, server by server.
#[must_use]
pub fn query(result: &QueryResult) -> String {
    let mut text = format!("{QUERY}\n");
    for server in &result.servers {
        let address = server.address.map_or_else(String::new, |address| address.to_string());
        let server_fields = format!("{},{address},{}", quoted(&server.name), server.port);
        for s in &server.samples {
            let times = [s.t1_ns, s.t2_ns, s.t3_ns, s.t4_ns].map(|ns| ns.to_string()).join(",");
            let figures = format!("{},{},{}", s.offset_ns, s.delay_ns, s.dispersion_ns);
            let sources = [s.transmit, s.receive].map(timestamp_source_name).join(",");
            // Writing to memory cannot fail.
            let _ = writeln!(
                text,
                "{server_fields},{},{times},{figures},{},{sources},{}",
                s.sequence,
                s.error_bound_ns(),
                s.interleaved
            );
        }
    }
    text
}

/// Header line of [`figures`], with its newline.
pub const FIGURES_HEADER: &str = "run,name,schema,started,command,path,value\n";

/// Returns all numbers of a result of any kind as CSV without header: one line per number with its
/// path, and with the number, name and command of the run.
#[must_use]
pub fn figures(run: i64, name: &str, command: &str, result: &Value) -> String {
    let of = |name: &str| quoted(result[name].as_str().unwrap_or_default());
    let [name, command] = [name, command].map(quoted);
    let before = format!("{run},{name},{},{},{command}", of("schema"), of("started"));
    let mut text = String::new();
    for (path, value) in numeric_values(result) {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{before},{},{value}", quoted(&path));
    }
    text
}

/// Returns the source of a timestamp, in a word.
pub(crate) const fn timestamp_source_name(kind: TimestampSource) -> &'static str {
    match kind {
        TimestampSource::Hardware => "hardware",
        TimestampSource::Kernel => "kernel",
        TimestampSource::User => "user",
    }
}

/// Returns a CSV field, quoted if necessary.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_line_for_each_sample_with_as_many_fields_as_titles() {
        let text = query(&fixture::query(5));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 5);
        for line in &lines {
            assert_eq!(line.split(',').count(), QUERY.split(',').count(), "{line}");
        }
        let fields: Vec<_> = lines[6].split(',').collect();
        assert_eq!(fields[..4], ["time.example", "2001:db8::2", "123", "0"]);
        let [t1, t2, t3, t4] = [4, 5, 6, 7].map(|at| fields[at].parse::<i64>().unwrap());
        let [offset, delay] = [8, 9].map(|at| fields[at].parse::<i64>().unwrap());
        // Equations (6) and (7), to half a nanosecond.
        assert!((i64::midpoint(t2 - t1, t3 - t4) - offset).abs() <= 1);
        assert!(((t4 - t1) - (t3 - t2) - delay).abs() <= 1);
    }

    #[test]
    fn a_name_with_a_comma_stays_one_field() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("time.example"), "time.example");
    }
}
