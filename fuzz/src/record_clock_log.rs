//! Arbitrary bytes as a clock's error log. Parsing never panics, reports the number of an invalid
//! line and continues after it; the result is rendered, and a written line is readable again.
#![no_main]

use horolog_record::{CLOCK_LOG_LINE_MAX, ClockLogLine, ClockLogReader};
use horolog_report::table::TableStyle;
use horolog_report::{RenderableResult as _, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = ClockLogReader::default();
    let mut parsed = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        match reader.read_line(line) {
            Ok(()) => parsed += 1,
            Err(error) => assert!(error.starts_with(&format!("line {}: ", parsed + 1)), "{error}"),
        }
        if let Ok(entry) = ClockLogLine::parse(line) {
            let written = serde_json::to_vec(&entry).expect("a parsed line can be written");
            // Numbers and escapes may be longer than in the input.
            let again = ClockLogLine::parse(&written);
            assert!(again == Ok(entry) || written.len() > CLOCK_LOG_LINE_MAX, "{again:?}");
        }
    }
    let result = reader.result("log".to_owned());
    assert_eq!(result.lines, parsed);
    let _ = to_json(&result);
    assert!(!result.text(&TableStyle::default()).contains("NaN"));
    let page = result.page();
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<script").count(), page.matches("</script").count());
});
