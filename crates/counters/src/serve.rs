//! Responses to requests for the counter snapshot. A client without the token learns nothing, not
//! even which paths exist.

use std::io;

use horolog_http::{HttpRequest, HttpResponse};
use horolog_sys::capability::Capability;
use horolog_sys::sandbox;

use crate::{BearerToken, CounterQuery, CounterSnapshot, render_text};

/// Path of the snapshot in JSON.
pub(crate) const JSON_PATH: &str = "/counters";
const TEXT_PATH: &str = "/counters.txt";

/// Drops all privileges but the one that a snapshot needs: access to the directory of chronyd's
/// command socket. Threads that start later inherit that.
pub fn confine() -> io::Result<()> {
    sandbox::keep_capabilities(&[Capability::DacOverride])?;
    sandbox::no_new_privileges()
}

/// Returns the response to `request`: the snapshot as JSON or text; status 401 without the token,
/// 404 for another path, 400 for an invalid query. `read_snapshot` reads the snapshot that its
/// query selects.
pub fn respond(
    request: &HttpRequest<'_>,
    token: &BearerToken,
    read_snapshot: impl FnOnce(&CounterQuery) -> CounterSnapshot,
) -> HttpResponse {
    if !request.bearer.is_some_and(|presented| token.matches(presented)) {
        return HttpResponse::text(401, "the token is missing or wrong\n");
    }
    if ![JSON_PATH, TEXT_PATH].contains(&request.path) {
        return HttpResponse::text(404, format!("not found: choose {JSON_PATH} or {TEXT_PATH}\n"));
    }
    match CounterQuery::parse(request.query) {
        Err(error) => HttpResponse::text(400, format!("{error}\n")),
        Ok(query) if request.path == TEXT_PATH => {
            HttpResponse::text(200, render_text(&read_snapshot(&query)))
        }
        Ok(query) => HttpResponse {
            code: 200,
            media_type: "application/json",
            body: read_snapshot(&query).to_json(),
        },
    }
}
