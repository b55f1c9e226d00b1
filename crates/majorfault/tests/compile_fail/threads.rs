//! What belongs to one thread stays there.
#![forbid(unsafe_code)]
use majorfault::access::Reader;
use majorfault::pool::Pool;

fn shared(reader: &dyn Reader) {
    std::thread::scope(|scope| {
        scope.spawn(|| reader.sibling().is_ok());
    });
}

fn peeked(pool: &Pool) {
    let page = pool.peek(0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || page.word(0));
    });
}

fn main() {
    let _ = (shared, peeked);
}
