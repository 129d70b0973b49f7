//! The metrics page over HTTP/1.1: `GET` and `HEAD` of `/metrics`, nothing else.
//!
//! 1. One thread runs all connections. Separate threads produce the page, at most [`SCRAPES_MAX`]
//!    at a time, so that a scrape that waits for the pool delays no other connection.
//! 2. The number of connections is limited. A new one replaces the oldest one without a request in
//!    progress, so silent peers never keep a scrape out. Silent peers and idle connections are
//!    closed after a few seconds, and every connection has a limited life.
//! 3. A request must name an address, or a name that the administrator allowed, as its host
//!    (`hosts.rs`). Otherwise a web page in a browser on this machine could read the metrics
//!    through a name that resolves to this address.
//!
//! There is no authentication, and nothing can be changed through it. Parsing is hyper's.

mod answer;
mod hosts;
mod places;

use answer::{Scraper, answer};
pub use hosts::Hosts;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use places::Places;
use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Most pages produced at a time.
pub const SCRAPES_MAX: usize = 2;
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failure to accept a connection: out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Address and limits of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen at; port 0: any free one.
    pub address: SocketAddr,
    /// Host names that requests may use.
    pub hosts: Hosts,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Time for the head of a request, and most idle time.
    pub head_timeout: Duration,
    /// Time for a page, waiting included.
    pub scrape_timeout: Duration,
    /// Longest life of a connection.
    pub connection_life: Duration,
}

impl Options {
    /// Range of `connections_max`.
    pub const CONNECTIONS: std::ops::RangeInclusive<usize> = 1..=4096;

    /// Default limits at this address.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            hosts: Hosts::default(),
            connections_max: 64,
            head_timeout: Duration::from_secs(5),
            scrape_timeout: Duration::from_secs(10),
            connection_life: Duration::from_secs(300),
        }
    }
}

/// A running server. Dropping it closes all connections.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the pages that `produce` returns; `None`: there is none, as the pool has stopped.
    ///
    /// # Errors
    /// The address cannot be listened at, or no thread can be started.
    pub fn start(
        options: Options,
        produce: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind(options.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(SCRAPES_MAX)
            .thread_name("windrow-scrape")
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let scraper = Arc::new(Scraper::new(produce, options.scrape_timeout));
        let body = move || {
            runtime.block_on(async {
                tokio::spawn(accept(listener, options, scraper));
                // An error means that the sender is gone: the end, too.
                drop(stopped.await);
            });
            // Ends all connections now. A page that is being produced may wait for the pool, and
            // the end does not wait for it.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new()
            .name("windrow-metrics".to_owned())
            .spawn(body)?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, options: Options, scraper: Arc<Scraper>) {
    let options = Arc::new(options);
    let mut places = Places::new(options.connections_max);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A failure only delays a page.
        drop(stream.set_nodelay(true));
        let (options, scraper) = (options.clone(), scraper.clone());
        places.seat(move |requests| {
            tokio::spawn(serve(TokioIo::new(stream), options, scraper, requests))
        });
    }
}

/// Serves one connection until it ends, stays silent or has reached its longest life.
async fn serve(
    stream: impl Read + Write + Unpin,
    options: Arc<Options>,
    scraper: Arc<Scraper>,
    requests: places::Requests,
) {
    let service = service_fn(|request| {
        let (options, scraper, guard) = (options.clone(), scraper.clone(), requests.begin());
        async move {
            let answer = answer(&request, &options.hosts, &scraper).await;
            drop(guard);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        // A client may close its side of the connection after its request.
        .half_close(true)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    // Errors of the connection are the client's own.
    if timeout(options.connection_life, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        drop(timeout(options.scrape_timeout, connection).await);
    }
}

#[cfg(test)]
mod tests;
