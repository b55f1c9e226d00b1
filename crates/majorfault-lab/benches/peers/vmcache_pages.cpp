// vmcache's buffer manager on random pages of a file, without a tree: what a miss costs it, for files of any size and budgets below a gigabyte.
//
//     g++ -DNDEBUG -O3 -std=c++20 -fnon-call-exceptions -fasynchronous-unwind-tables -I ~/vmcache vmcache_pages.cpp -o vmcache_pages -laio
//     BLOCK=file VIRTGB=64 PHYSGB=1 BUDGET=67108864 THREADS=2 RUNFOR=3 ./vmcache_pages
//
// The -I names vmcache's sources (https://github.com/viktorleis/vmcache). BUDGET is its memory in bytes, at most PHYSGB. It says pages read a
// second, and processor nanoseconds a page, after a second that fills the memory.
#include <sys/mman.h>

// It reserves as much memory as the file is long, which a machine whose vm.overcommit_memory is 0 refuses without this flag.
#define mmap(address, length, protection, flags, ...) mmap(address, length, protection, (flags) | MAP_NORESERVE, __VA_ARGS__)
#define main vmcache_main
#include "vmcache.cpp"
#undef main

#include <random>
#include <sys/resource.h>

static double processor_ns() {
   struct rusage usage;
   getrusage(RUSAGE_SELF, &usage);
   return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

int main() {
   // Its constructor knows whole gigabytes; these two members are all that its budget is.
   bm.physCount = envOr("BUDGET", bm.physSize) / pageSize;
   bm.residentSet.~ResidentPageSet();
   new (&bm.residentSet) ResidentPageSet(bm.physCount);

   std::atomic<bool> running(true);
   std::atomic<u64> sum(0);
   std::vector<std::thread> threads;
   for (unsigned number = 0; number < envOr("THREADS", 1); number++) {
      threads.emplace_back([&, number]() {
         workerThreadId = number;
         std::mt19937_64 source(number + 1);
         std::uniform_int_distribution<u64> pages(0, bm.virtCount - 1);
         u64 mine = 0;
         while (running) {
            PID pid = pages(source);
            mine += reinterpret_cast<volatile unsigned char*>(bm.fixS(pid))[pageSize / 2];
            bm.unfixS(pid);
         }
         sum += mine;
      });
   }
   sleep(1);
   u64 seconds = envOr("RUNFOR", 3);
   bm.readCount.exchange(0);
   double before = processor_ns();
   sleep(seconds);
   double read = bm.readCount.exchange(0), took = processor_ns() - before;
   running = false;
   for (auto& thread : threads)
      thread.join();
   printf("%.0f %.0f\n", read / seconds, took / read);
   // Each bench of ours reads what it is given, too; the sum keeps the compiler from leaving that out.
   return sum == ~0ull;
}
