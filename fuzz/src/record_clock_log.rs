//! Any bytes as a clock's error log. Reading it never panics, names the line that is wrong and goes
//! on behind it; what was read is drawn, and the lines that are written are read again.
#![no_main]

use horolog_record::{CLOCK_LOG_LINE_MAX, ClockLogLine, ClockLogReader};
use horolog_report::table::TableStyle;
use horolog_report::{RenderableResult as _, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = ClockLogReader::default();
    let mut taken = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        match reader.read_line(line) {
            Ok(()) => taken += 1,
            Err(why) => assert!(why.starts_with(&format!("line {}: ", taken + 1)), "{why}"),
        }
        if let Ok(entry) = ClockLogLine::parse(line) {
            let written = serde_json::to_vec(&entry).expect("what is read can be written");
            // Numbers and escapes may take more room than they had.
            let again = ClockLogLine::parse(&written);
            assert!(again == Ok(entry) || written.len() > CLOCK_LOG_LINE_MAX, "{again:?}");
        }
    }
    let result = reader.result("log".to_owned());
    assert_eq!(result.lines, taken);
    let _ = to_json(&result);
    assert!(!result.text(&TableStyle::default()).contains("NaN"));
    let page = result.page();
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<script").count(), page.matches("</script").count());
});
