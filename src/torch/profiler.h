/* profiler: torch.profiler's way to the device: each kernel that ran, with the operators fused in it and the user's line, for its tables and the Chrome trace.
 *
 * PyTorch hands our factory to Kineto (PrivateUse1ProfilerRegistry), which opens a session for each profile that includes ProfilerActivity.PrivateUse1. A session
 * has src/eager note each kernel (profile.h, as `tern profile` does: one profile at a time in a process) and afterwards turns the notes into Kineto's activities. */
#ifndef TERN_TORCH_PROFILER_H
#define TERN_TORCH_PROFILER_H
#define USE_KINETO
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include "bridge.h"
extern "C" {
#include "../eager/profile.h"
}

namespace tern {

struct KernelSeen {
  tern_profile_event event;
  std::string operators;
};

/* "/home/me/train.py:12 (step)" -> "train.py:12" */
inline std::string short_line(const std::string &line) {
  size_t end = line.rfind(" ("), folder = line.rfind('/', end);
  size_t start = folder == std::string::npos ? 0 : folder + 1;
  return line.substr(start, end == std::string::npos ? end : end - start);
}

class ProfilerSession final : public libkineto::IActivityProfilerSession {
  /* Kineto's times are nanoseconds of the system clock; the devices' are of the monotonic one. */
  static int64_t wall(int64_t nanoseconds) {
    static const int64_t offset = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count() - (int64_t)(tern_now() * 1e9);
    return nanoseconds + offset;
  }
  std::vector<KernelSeen> kernels;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer;

 public:
  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    tern_profile_start();
  }
  /* What the profiled lines recorded and nobody has read yet belongs to the profile. */
  void stop() override {
    wait([] { return tern_error_free(tern_synchronize_all()), tern_status(nullptr); }); /* an error is for whoever reads */
    tern_profile_stop();
    kernels.clear();
    tern_profile_each([](void *list, const tern_profile_event *event) { ((std::vector<KernelSeen> *)list)->push_back({*event, event->operators}); }, &kernels);
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger &logger) override {
    buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer->gpuOpCount = (int)kernels.size();
    buffer->span = libkineto::TraceSpan(kernels.empty() ? 0 : wall(kernels.front().event.start), kernels.empty() ? 0 : wall(kernels.back().event.end), "tern");
    int32_t number = 0;
    for (const KernelSeen &kernel : kernels) {
      std::string line = line_text(kernel.event.line);
      std::string name = c10::str("tern::", kernel.event.kernel, "(", kernel.operators, ")", line.empty() ? "" : " " + short_line(line));
      buffer->emplace_activity(buffer->span, libkineto::ActivityType::CONCURRENT_KERNEL, name);
      libkineto::GenericTraceActivity &activity = *buffer->activities.back();
      activity.startTime = wall(kernel.event.start), activity.endTime = wall(kernel.event.end);
      activity.id = ++number, activity.device = kernel.event.device;
      activity.addMetadataQuoted("operators", kernel.operators);
      activity.addMetadataQuoted("line", line);
      activity.addMetadataQuoted("flops", std::to_string(kernel.event.flops)); /* as text: Kineto keeps the formatting of numbers to itself */
      activity.addMetadataQuoted("bytes", std::to_string(kernel.event.bytes));
      activity.log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 5000000, "tern", "tern:0"}); }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {{0, 0, 0, "queue"}}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer); }
};

class Profiler final : public libkineto::IActivityProfiler {
  std::string own_name = "tern";
  std::set<libkineto::ActivityType> types{libkineto::ActivityType::CONCURRENT_KERNEL, libkineto::ActivityType::PRIVATEUSE1_RUNTIME};

 public:
  const std::string &name() const override { return own_name; }
  const std::set<libkineto::ActivityType> &availableActivities() const override { return types; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<libkineto::ActivityType> &wanted, const libkineto::Config &) override {
    if (!wanted.count(libkineto::ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<ProfilerSession>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<libkineto::ActivityType> &wanted, const libkineto::Config &config) override {
    return configure(wanted, config);
  }
};

inline void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([]() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Profiler>(); });
}

}  // namespace tern
#endif
