//! Serves one text by HTTP at /metrics during the watch.

use super::openmetrics::MEDIA_TYPE;
use majorfault::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

/// How soon the end is noticed, and the pause after the server failed (too many open files).
const PAUSE: Duration = Duration::from_millis(100);

/// The address to listen at, from the user's word: a loopback port, or a full address.
///
/// Errors: a sentence with the legal forms.
pub fn address(word: &str) -> std::result::Result<SocketAddr, String> {
    let port = word.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| word.parse())
        .map_err(|_| format!("\"{word}\" is not an address; write a port (9464) or an address (127.0.0.1:9464)"))
}

/// Serves the latest text until it is dropped.
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    text: Mutex<String>,
    ends: AtomicBool,
}

impl Endpoint {
    /// Listens at `address` and serves `text`.
    ///
    /// Errors: Io where it cannot listen there.
    pub fn open(address: SocketAddr, text: String) -> Result<Endpoint> {
        let listener = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = listener.map_err(|error| {
            let remedy = "name a free port of this machine, or 0 for any";
            Error::io("listen for HTTP", address.to_string(), error).with_remedy(remedy)
        })?;
        let shared = Arc::new(Shared { text: Mutex::new(text), ends: AtomicBool::new(false) });
        let (of_thread, thread) = (Arc::clone(&shared), std::thread::Builder::new().name("metrics".to_owned()));
        let thread = thread
            .spawn(move || serve(&listener, &of_thread))
            .map_err(|error| Error::io("start a thread", "metrics", error))?;
        Ok(Endpoint { address, shared, thread: Some(thread) })
    }

    /// The address in use; the port is the actual one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves this text from now on.
    pub fn publish(&self, text: String) {
        *self.shared.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // It notices the end within PAUSE; a panic there was printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    while !shared.ends.load(Ordering::Relaxed) {
        // A server ends with the first connection that it cannot accept; the next one continues on the same port.
        if let Ok(server) = listener.try_clone().map_err(Into::into).and_then(|own| Server::from_listener(own, None)) {
            answer_all(&server, shared);
        }
        std::thread::sleep(PAUSE);
    }
}

fn answer_all(server: &Server, shared: &Shared) {
    while !shared.ends.load(Ordering::Relaxed) {
        match server.recv_timeout(PAUSE) {
            Ok(Some(request)) => answer(request, shared),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn answer(request: Request, shared: &Shared) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (status, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => {
            (200, shared.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
        (Method::Get | Method::Head, _) => (404, "the metrics are at /metrics\n".to_owned()),
        _ => (405, "only GET and HEAD\n".to_owned()),
    };
    let media = if status == 200 { MEDIA_TYPE } else { "text/plain; charset=utf-8" };
    let mut response = Response::from_string(text).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", media) {
        response.add_header(header);
    }
    // The client is gone; there is nobody to report a failure to.
    let _ = request.respond(response);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(endpoint: &Endpoint, line: &str) -> String {
        let mut stream = TcpStream::connect(endpoint.address()).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn a_port_alone_is_one_of_the_loopback() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("0.0.0.0:80").unwrap().to_string(), "0.0.0.0:80");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for wrong in ["", ":80", "localhost:80", "127.0.0.1", "70000"] {
            assert!(address(wrong).unwrap_err().contains("write a port"), "{wrong}");
        }
    }

    #[test]
    fn the_latest_text_is_served_at_metrics_and_nowhere_else() {
        let endpoint = Endpoint::open(address("0").unwrap(), "first\n".to_owned()).unwrap();

        let first = ask(&endpoint, "GET /metrics");
        endpoint.publish("second\n".to_owned());
        let second = ask(&endpoint, "GET /metrics?x=1");

        assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("\r\n\r\nfirst\n"), "{first}");
        assert!(first.contains(MEDIA_TYPE), "{first}");
        assert!(second.ends_with("\r\n\r\nsecond\n"), "{second}");
        assert!(ask(&endpoint, "GET /").starts_with("HTTP/1.1 404"));
        assert!(ask(&endpoint, "POST /metrics").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_port_that_is_taken_is_reported_in_words() {
        let endpoint = Endpoint::open(address("0").unwrap(), String::new()).unwrap();

        let error = Endpoint::open(endpoint.address(), String::new()).err().unwrap().to_string();

        assert!(error.contains("listen for HTTP") && error.contains("name a free port"), "{error}");
    }
}
