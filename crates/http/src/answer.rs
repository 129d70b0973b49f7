//! Answers to requests.

use crate::SCRAPES_MAX;
use crate::hosts::{Hosts, Verdict};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Text format of Prometheus.
const PAGE_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Produce = dyn Fn() -> Option<String> + Send + Sync;

/// Produces pages outside the thread of the connections.
pub(crate) struct Scraper {
    produce: Arc<Produce>,
    permits: Arc<Semaphore>,
    patience: Duration,
}

impl Scraper {
    pub(crate) fn new(
        produce: impl Fn() -> Option<String> + Send + Sync + 'static,
        patience: Duration,
    ) -> Self {
        Self {
            produce: Arc::new(produce),
            permits: Arc::new(Semaphore::new(SCRAPES_MAX)),
            patience,
        }
    }

    /// A page, or the reason why there is none.
    async fn scrape(&self) -> Result<String, (StatusCode, &'static str)> {
        let produced = async {
            // The semaphore is never closed.
            let permit = self.permits.clone().acquire_owned().await.ok()?;
            let produce = self.produce.clone();
            // The permit goes with the work: a client that leaves does not free a slot for another
            // page.
            let work = move || {
                let page = produce();
                drop(permit);
                page
            };
            Some(tokio::task::spawn_blocking(work).await)
        };
        match timeout(self.patience, produced).await {
            Ok(Some(Ok(Some(page)))) => Ok(page),
            Ok(Some(Ok(None))) => Err((StatusCode::SERVICE_UNAVAILABLE, "the pool has stopped\n")),
            Ok(_) => Err((
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page could not be produced; see the log of the daemon\n",
            )),
            Err(_) => Err((
                StatusCode::SERVICE_UNAVAILABLE,
                "the pool has not answered in time; see `windrow pool status`\n",
            )),
        }
    }
}

/// The answer to a request.
pub(crate) async fn answer<B>(
    request: &Request<B>,
    hosts: &Hosts,
    scraper: &Scraper,
) -> Result<Response<Full<Bytes>>, Infallible> {
    match hosts.judge(request.version(), request.uri(), request.headers()) {
        Verdict::Allowed => {}
        Verdict::Malformed => {
            return Ok(respond(
                StatusCode::BAD_REQUEST,
                "a request needs one Host header\n",
            ));
        }
        Verdict::Foreign => {
            let line = "this host name is not served; use an address or localhost, or allow the name with `windrow serve --metrics-host NAME`\n";
            return Ok(respond(StatusCode::MISDIRECTED_REQUEST, line));
        }
    }
    if request.uri().path() != "/metrics" {
        return Ok(respond(StatusCode::NOT_FOUND, "only /metrics is served\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = respond(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are served\n",
        );
        refusal
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    Ok(match scraper.scrape().await {
        Ok(page) => respond(StatusCode::OK, page),
        Err((status, line)) => respond(status, line),
    })
}

fn respond(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PAGE_TYPE));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
