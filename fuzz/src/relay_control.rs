//! Arbitrary bytes as a request to a relay: parsing never panics, an error is one line, a parsed
//! request is unchanged after it was written and parsed again, and an edit of a table yields a
//! valid table or an error of one line.
#![no_main]

use horolog_relay::control::ControlRequest;
use horolog_relay::{RoutingTable, RoutingTableSpec};
use libfuzzer_sys::fuzz_target;

const TABLE: &str = "destinations = [\"192.0.2.0/24\"]\n[[group]]\nname = \"g\"\n\
                     listen = \"192.0.2.1:5000\"\nsources = [\"192.0.2.0/24\"]\n\
                     children = [\"192.0.2.2:5000\", \"192.0.2.3:5000\"]\n";

fuzz_target!(|bytes: &[u8]| match ControlRequest::parse(bytes) {
    Ok(request) => {
        let line = request.to_line();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(ControlRequest::parse(line.as_bytes()), Ok(request.clone()));
        let mut spec = RoutingTableSpec::parse(TABLE).expect("a table file");
        let before = RoutingTable::new(&spec, None).expect("a valid table");
        if let Err(error) =
            request.edit(&mut spec).and_then(|()| RoutingTable::new(&spec, Some(&before)).map(drop))
        {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    Err(reason) => assert!(!reason.contains('\n'), "{reason}"),
});
