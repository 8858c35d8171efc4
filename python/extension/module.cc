// The extension lynx._lynx. It has what lynx/*.py need, and no more; lynx/_lynx.pyi describes it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "python/extension/answers.h"
#include "python/extension/background.h"
#include "python/extension/client.h"
#include "python/extension/planning.h"

namespace lynx::python {
namespace {

namespace py = pybind11;

// Fills the fields of RequestTexts from arguments with the same names.
std::shared_ptr<const Request> RequestFrom(const py::kwargs& fields) {
  RequestTexts texts;
  const auto take = [&](const char* name, auto& value) {
    if (fields.contains(name)) value = fields[name].cast<std::remove_reference_t<decltype(value)>>();
  };
  take("job", texts.job);
  take("job_name", texts.job_name);
  take("folder", texts.folder);
  take("overrides", texts.overrides);
  take("cluster", texts.cluster);
  take("cluster_name", texts.cluster_name);
  take("profile", texts.profile);
  take("profile_name", texts.profile_name);
  take("nodes", texts.nodes);
  take("devices_per_node", texts.devices_per_node);
  take("device_memory", texts.device_memory);
  take("host_memory", texts.host_memory);
  take("any_framework", texts.any_framework);
  take("keep_node_order", texts.keep_node_order);
  take("exact", texts.exact);
  take("exact_seconds", texts.exact_seconds);
  take("solver", texts.solver);
  return ReadRequest(texts);
}

void DefinePlanning(py::module_& module) {
  py::class_<Request, std::shared_ptr<Request>>(module, "Request")
      .def(py::init([](const py::kwargs& fields) { return std::make_shared<Request>(*RequestFrom(fields)); }))
      .def("without_memory_limit",
           [](const Request& request) { return std::make_shared<Request>(*WithoutMemoryLimit(request)); });
  py::class_<MadePlan, std::shared_ptr<MadePlan>>(module, "MadePlan")
      .def("table", &MadePlan::Table)
      .def("json", &MadePlan::Json)
      .def("attributes", &MadePlan::Attributes)
      .def("html", &MadePlan::Html)
      .def("trace", &MadePlan::Trace)
      .def("memory", &MadePlan::Memory)
      .def("actions", &MadePlan::Actions);
  py::class_<AnswerTexts>(module, "AnswerTexts")
      .def_readonly("table", &AnswerTexts::table)
      .def_readonly("json", &AnswerTexts::json)
      .def_readonly("csv", &AnswerTexts::csv);
  py::class_<FrameworkAnswer>(module, "FrameworkAnswer")
      .def_readonly("table", &FrameworkAnswer::table)
      .def_readonly("json", &FrameworkAnswer::json)
      .def_readonly("fits", &FrameworkAnswer::fits);
  py::class_<ExportTexts>(module, "ExportTexts")
      .def_readonly("json", &ExportTexts::json)
      .def_readonly("missing", &ExportTexts::missing);
  using Asked = std::shared_ptr<Request>;  // not const, because pybind11 cannot hold pointers to const
  module.def("plan", [](const Asked& request) { return PlanOf(request); });
  module.def("compare", [](const Asked& request) { return Compare(request); });
  module.def("explain", [](const Asked& request) { return Explain(request); });
  module.def("what_if",
             [](const Asked& now, const Asked& changed, const std::string& nodes) { return WhatIf(now, changed, nodes); });
  module.def("plan_of_framework",
             [](const Asked& request, const std::string& framework) { return PlanOfFramework(request, framework); });
  module.def("export", [](const Asked& request, const std::string& format, const std::string& version) {
    return Export(request, format, version);
  });
  module.def("complete_job", &CompleteJob);
  module.def("fields_of_jobs", &FieldsOfJobs);
  module.def("preset_names", &PresetNames);
  module.def("describe_cluster", &DescribeCluster);
}

void DefineClient(py::module_& module) {
  py::class_<JobWatch>(module, "JobWatch").def("next", &JobWatch::Next).def("close", &JobWatch::Close);
  py::class_<Service>(module, "Service")
      .def(py::init([](const std::string& server, const std::string& context, const std::string& ca_file,
                       const std::string& token_file, bool no_context, double timeout) {
        return std::make_unique<Service>(
            cli::ConnectionFlags{
                .server = server, .context = context, .ca_file = ca_file, .token_file = token_file, .no_context = no_context},
            timeout);
      }))
      .def_property_readonly("server", &Service::server)
      .def("submit", &Service::Submit)
      .def("get", &Service::Get)
      .def("list", &Service::List)
      .def("cancel", &Service::Cancel)
      .def("hold", &Service::Hold)
      .def("release", &Service::Release)
      .def("logs", &Service::Logs)
      .def("curves", &Service::Curves)
      .def("nodes", &Service::Nodes)
      .def("queues", &Service::Queues)
      .def("who_am_i", &Service::WhoAmI)
      .def("plan", &Service::PlanOf)
      .def("watch", &Service::Watch);
}

}  // namespace
}  // namespace lynx::python

PYBIND11_MODULE(_lynx, module) {
  module.doc() = "The planner of Lynx and its client, in C++. Use the package lynx.";
  module.attr("version") = LYNX_VERSION;
  lynx::python::DefinePlanning(module);
  lynx::python::DefineClient(module);
  pybind11::module_::import("atexit").attr("register")(pybind11::cpp_function(&lynx::python::FinishBackground));
}
